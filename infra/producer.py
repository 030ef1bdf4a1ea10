"""Sends planned deliveries to Kafka and records each one's outcome in the ledger."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from threading import Event as StopSignal
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from infra.deliveries import Chunk, Planned, Role
from infra.ledger import LedgerWriter
from serving.errors import LogUnavailable

DELIVERY_TIMEOUT_SECONDS = 30.0
LARGEST_MESSAGE_BYTES = 8 << 20

_NEVER_SENT = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._PURGE_QUEUE,
    }
)
"""With any other error the broker may have taken the delivery."""


@dataclass(slots=True)
class Sent:
    """How many deliveries ended which way, and how long it took."""

    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    by_role: Counter[Role] = field(default_factory=Counter)
    """Of the acknowledged ones."""
    seconds: float = 0.0
    stopped: bool = False

    @property
    def ended(self) -> int:
        return self.acknowledged + self.failed + self.unknown


class _Sender:
    """One run: hands deliveries to librdkafka and takes their outcomes back, both in the calling thread."""

    def __init__(self, producer: Producer, topic: str, ledger: LedgerWriter | None) -> None:
        self.sent = Sent()
        self._producer = producer
        self._topic = topic
        self._ledger = ledger

    def send(self, planned: Planned) -> None:
        where = {} if planned.partition is None else {"partition": planned.partition}
        on_delivery = partial(self._done, planned)
        while True:
            try:
                self._producer.produce(self._topic, planned.value, planned.key, on_delivery=on_delivery, **where)
                return
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                self._fail(planned, error.args[0])
                return

    def wait_until(self, instant: float, stop: StopSignal) -> None:
        """Serve outcomes until a moment of the monotonic clock or a stop, at least once."""
        self._producer.poll(0)
        while (remaining := instant - monotonic()) > 0 and not stop.is_set():
            self._producer.poll(min(remaining, 0.2))

    def finish(self) -> None:
        """Wait for what is under way; what has no outcome by then never will."""
        if self._producer.flush(DELIVERY_TIMEOUT_SECONDS + 5):
            self._producer.purge(in_queue=True, in_flight=True)
            self._producer.flush(5)

    def _done(self, planned: Planned, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._fail(planned, error)
            return
        self.sent.acknowledged += 1
        self.sent.by_role[planned.role] += 1
        if self._ledger:
            self._ledger.acknowledge(planned, message.partition(), message.offset(), message.timestamp()[1])

    def _fail(self, planned: Planned, error: KafkaError) -> None:
        if error.code() in _NEVER_SENT:
            self.sent.failed += 1
            record = self._ledger and self._ledger.fail
        else:
            self.sent.unknown += 1
            record = self._ledger and self._ledger.leave_unknown
        if record:
            record(planned, error.str())


def send_all(
    producer: Producer,
    topic: str,
    chunks: Iterable[Chunk],
    *,
    ledger: LedgerWriter | None,
    rate: float | None,
    stop: StopSignal,
    progress: Callable[[Chunk | None, Sent], None] = lambda chunk, sent: None,
) -> Sent:
    """Send chunks in order, at most `rate` deliveries a second, until they end or `stop` is set.

    Guarantees: on return every delivery handed over has its outcome in the ledger, and the ledger its end. If the
    process dies, the ledger has no end and its last intent says what may be in the topic besides.
    """
    sender = _Sender(producer, topic, ledger)
    started = monotonic()
    pace = _Pace(rate, started)
    for chunk in chunks:
        if ledger:
            ledger.intend(chunk.first, chunk.until)
        for slice_ in pace.slices(chunk.deliveries):
            sender.wait_until(pace.next_send, stop)
            if stop.is_set():
                break
            for planned in slice_:
                sender.send(planned)
        progress(chunk, sender.sent)
        if stop.is_set():
            sender.sent.stopped = True
            break
    sender.finish()
    sender.sent.seconds = monotonic() - started
    progress(None, sender.sent)
    if ledger:
        ledger.end({"acknowledged": sender.sent.acknowledged, "failed": sender.sent.failed, "unknown": sender.sent.unknown})
    return sender.sent


class _Pace:
    """An open schedule: delivery n is due at start + n / rate, however long the ones before it took."""

    def __init__(self, rate: float | None, started: float) -> None:
        self._rate = rate
        self._started = started
        self._handed_over = 0
        self._at_once = 256 if rate is None else max(1, int(rate / 100))

    @property
    def next_send(self) -> float:
        return self._started if self._rate is None else self._started + self._handed_over / self._rate

    def slices(self, deliveries: list[Planned]) -> Iterable[list[Planned]]:
        for start in range(0, len(deliveries), self._at_once):
            slice_ = deliveries[start : start + self._at_once]
            yield slice_
            self._handed_over += len(slice_)


def open_producer(bootstrap: str, topic: str, *, patience_seconds: float = 10.0) -> tuple[Producer, int]:
    """A producer that never re-orders or repeats on retry, and how many partitions the topic has."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "seam-produce",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 100_000,
            "message.max.bytes": LARGEST_MESSAGE_BYTES,
            "message.timeout.ms": int(DELIVERY_TIMEOUT_SECONDS * 1000),
            "partitioner": "murmur2_random",
        },
        logger=logging.getLogger("seam.producer"),
    )
    unavailable = LogUnavailable(f"Kafka at {bootstrap} does not answer.", untouched="Nothing was sent.", fix="Start it: seam up.")
    try:
        known = producer.list_topics(topic, timeout=patience_seconds).topics[topic]
    except KafkaException as error:
        raise unavailable from error
    if known.error is not None:
        raise LogUnavailable(f"Topic {topic}: {known.error.str()}.", untouched="Nothing was sent.", fix="Create it: seam up.")
    return producer, len(known.partitions)
