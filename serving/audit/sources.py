"""Where a recount takes its deliveries from: the topic itself, as plain bytes, or a file of JSON lines.

A dump has one line per delivery; `seam produce --ledger` writes such lines too, so a ledger can stand in for the log:

    {"partition": 0, "offset": 17, "log_time_ms": 1772323200000, "event": {...the value as it is...}}
    {"partition": 2, "offset": 5, "log_time_ms": 1772323200000, "raw": "<base64 of the value, or null>"}
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from serving.audit.recount import Delivery
from serving.errors import BadRequest, LogDiverged, LogUnavailable, OffsetsExpired
from serving.store.vectors import OffsetVector

_EVENT_MARK = b'"event":'
_AT_ONCE = 5_000
_WAIT_SECONDS = 0.05


def read_topic(
    bootstrap: str, topic: str, since: OffsetVector, until: OffsetVector, *, patience_seconds: float = 30.0
) -> Iterator[Delivery]:
    """Every committed delivery of the topic in `[since, until)`, in no particular order between partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "seam-audit",
            "client.id": "seam-audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
        },
        logger=logging.getLogger("seam.audit"),
    )
    try:
        wanted = {partition: end for partition, end in until if end > since[partition]}
        for partition, end in wanted.items():
            _check_held(consumer, TopicPartition(topic, partition, since[partition]), end, patience_seconds)
        consumer.assign([TopicPartition(topic, partition, since[partition]) for partition in wanted])
        yield from _read(consumer, topic, wanted, patience_seconds)
    except KafkaException as error:
        raise LogUnavailable(f"Kafka at {bootstrap}: {error.args[0].str()}.", fix="seam status") from error
    finally:
        consumer.close()


def _check_held(consumer: Consumer, first: TopicPartition, end: int, patience_seconds: float) -> None:
    topic, partition, start = first.topic, first.partition, first.offset
    first_held, log_end = consumer.get_watermark_offsets(first, timeout=patience_seconds)
    if first_held > start:
        raise OffsetsExpired(
            f"{topic}/{partition}: Kafka no longer holds offsets {start} to {first_held - 1}, so the log cannot be recounted.",
            fix="Recount from a dump or a ledger that holds them: seam audit --from-dump FILE.",
            partition=partition,
        )
    if log_end < end:
        raise LogDiverged(
            f"{topic}/{partition} ends at offset {log_end}, but what is served counts deliveries below {end}.",
            fix="The topic was truncated or made again: seam status.",
            partition=partition,
        )


def _read(consumer: Consumer, topic: str, wanted: dict[int, int], patience_seconds: float) -> Iterator[Delivery]:
    """Offsets have holes: a partition is done at the first offset beyond its end, or at the end of the log."""
    open_partitions = set(wanted)
    deadline = monotonic() + patience_seconds
    while open_partitions:
        for message in consumer.consume(_AT_ONCE, timeout=_WAIT_SECONDS):
            deadline = monotonic() + patience_seconds
            partition = message.partition()
            if message.error() is not None:
                _raise_unless_end(message)
                open_partitions.discard(partition)
            elif message.offset() < wanted[partition]:
                yield Delivery(partition, message.offset(), message.timestamp()[1], message.value())
            elif partition in open_partitions:
                open_partitions.discard(partition)
                consumer.pause([TopicPartition(topic, partition)])
        if monotonic() > deadline:
            raise LogUnavailable(
                f"{topic}: nothing came for {patience_seconds:.0f} s in partitions {sorted(open_partitions)}.", fix="seam status"
            )


def _raise_unless_end(message: Message) -> None:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)


def read_dump(path: Path) -> Iterator[Delivery]:
    """The deliveries of a dump or a ledger; lines that are about no position are passed over."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.startswith(b'{"partition":') and line.endswith(b"\n"):
                    yield _delivery(path, number, line)
    except OSError as error:
        raise BadRequest(
            f"{path} cannot be read: {error.strerror}.", fix="Name a file that `seam audit --dump` or `seam produce --ledger` wrote."
        ) from error


def _delivery(path: Path, number: int, line: bytes) -> Delivery:
    try:
        mark = line.find(_EVENT_MARK)
        fields = json.loads(line if mark < 0 else line[:mark].rstrip(b", ") + b"}")
        if mark >= 0:
            value: bytes | None = line[mark + len(_EVENT_MARK) : line.rindex(b"}")].strip()
        else:
            value = None if fields["raw"] is None else b64decode(fields["raw"], validate=True)
        return Delivery(int(fields["partition"]), int(fields["offset"]), int(fields["log_time_ms"]), value)
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest(f"{path}, line {number}: not a delivery.", fix="Each line is as `seam audit --dump` writes it.") from error


def keep_dump(deliveries: Iterable[Delivery], path: Path) -> Iterator[Delivery]:
    """Pass deliveries on and write each as a line of a dump. Guarantees: an existing file is never overwritten."""
    try:
        with path.open("x") as dump:
            for each in deliveries:
                raw = None if each.value is None else b64encode(each.value).decode()
                line = {"partition": each.partition, "offset": each.offset, "log_time_ms": each.log_time_ms, "raw": raw}
                dump.write(json.dumps(line, separators=(",", ":")) + "\n")
                yield each
    except FileExistsError:
        raise BadRequest(f"{path} exists.", untouched="It was left as it is.", fix="Name another file.") from None
