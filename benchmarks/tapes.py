"""Fills topics with made-up events and knows what is true of them: how many there are, and their id checksum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event as StopSignal

import xxhash

from benchmarks.services import BenchmarkFailed, Services
from infra.deliveries import Chunk, Mix, Role, planned_deliveries
from infra.generator import Tape
from infra.kafka_log import HASH_SEED
from infra.producer import Sent, open_producer, send_all

REDELIVERED = Mix(duplicates=0.05)
EVENTS_PER_SECOND = 20_000
"""How dense event time is on the tapes: as dense as the load that latency is measured at."""
ID = slice(len('{"transaction_id":"'), len('{"transaction_id":"') + 36)


@dataclass(frozen=True, slots=True)
class Truth:
    """What an exact count must find."""

    events: int
    deliveries: int
    id_checksum: int
    seconds: float
    """How long sending took."""


def tape_of(seed: int, *, start: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC), late: float = 0.0) -> Tape:
    return Tape(seed=seed, start=start, gap=timedelta(seconds=1) / EVENTS_PER_SECOND, late=late)


def preload(services: Services, topic: str, tape: Tape, events: int, *, mix: Mix = REDELIVERED) -> Truth:
    """Send that many events at full rate; counts them on the way by itself."""
    checksum = 0

    def counted(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        nonlocal checksum
        for chunk in chunks:
            for planned in chunk.deliveries:
                if planned.role is Role.FIRST and planned.value is not None:
                    checksum ^= xxhash.xxh64_intdigest(planned.value[ID], HASH_SEED)
            yield chunk

    producer, partitions = open_producer(services.bootstrap, topic)
    chunks = counted(planned_deliveries(tape, mix, 0, events, partitions=partitions))
    sent = send_all(producer, topic, chunks, ledger=None, rate=None, stop=StopSignal())
    require_sent(sent)
    return Truth(events, sent.acknowledged, checksum - (1 << 64) if checksum >> 63 else checksum, sent.seconds)


def require_sent(sent: Sent) -> None:
    if sent.failed or sent.unknown:
        raise BenchmarkFailed(f"{sent.failed + sent.unknown} deliveries were not acknowledged")
