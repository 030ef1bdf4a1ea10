"""Sending to a real broker: the ledger and the topic say the same."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event as StopSignal
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from infra.deliveries import Chunk, Mix, Planned, Role, planned_deliveries
from infra.generator import Tape
from infra.kafka_log import KafkaLog
from infra.ledger import LedgerWriter, read_ledger
from infra.producer import open_producer, send_all
from serving.audit.recount import Delivery
from serving.audit.sources import read_topic
from serving.errors import LogUnavailable
from serving.store.vectors import OffsetVector

if TYPE_CHECKING:
    from tests.conftest import Kafka

TAPE = Tape(seed=5, start=datetime(2026, 3, 1, tzinfo=UTC), gap=timedelta(seconds=4), late=0.01)
EVENTS = 12_000


def chunks(partitions: int = 4, until: int = EVENTS) -> Iterator[Chunk]:
    return planned_deliveries(TAPE, Mix(0.05, 0.01), 0, until, partitions=partitions)


def in_topic(kafka: Kafka, topic: str) -> list[Delivery]:
    with KafkaLog(kafka.bootstrap, topic) as log:
        return sorted(read_topic(kafka.bootstrap, topic, OffsetVector(), log.end()))


def in_ledger(path: Path) -> list[Delivery]:
    return sorted(Delivery(*entry[:4]) for entry in read_ledger(path))


@pytest.mark.stack
def test_the_ledger_holds_exactly_what_the_topic_holds(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    producer, partitions = open_producer(kafka.bootstrap, topic)
    with LedgerWriter(tmp_path / "ledger", {"topic": topic}) as ledger:
        sent = send_all(producer, topic, chunks(), ledger=ledger, rate=None, stop=StopSignal())

    assert partitions == 4
    assert (sent.failed, sent.unknown, sent.stopped) == (0, 0, False)
    assert len(in_topic(kafka, topic)) == sent.acknowledged > EVENTS
    assert in_ledger(tmp_path / "ledger") == in_topic(kafka, topic)


@pytest.mark.stack
def test_an_account_stays_in_one_partition_but_for_redeliveries_sent_elsewhere(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    producer, _ = open_producer(kafka.bootstrap, topic)
    with LedgerWriter(tmp_path / "ledger", {}) as ledger:
        send_all(producer, topic, chunks(), ledger=ledger, rate=None, stop=StopSignal())
    homes: dict[str, set[int]] = defaultdict(set)
    places: dict[bytes, set[int]] = defaultdict(set)
    for entry in read_ledger(tmp_path / "ledger"):
        if entry.value is not None and entry.delivery is not Role.MALFORMED:
            places[entry.value].add(entry.partition)
        if entry.value is not None and entry.delivery is Role.FIRST:
            homes[json.loads(entry.value)["account_id"]].add(entry.partition)

    assert set(map(len, homes.values())) == {1}
    assert Counter(map(len, places.values()))[2] > 50


@pytest.mark.stack
def test_a_stop_leaves_a_ledger_with_an_end_that_equals_the_topic(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    producer, _ = open_producer(kafka.bootstrap, topic)
    stop = StopSignal()

    def stop_after_two_chunks(chunk: Chunk | None, sent: object) -> None:
        if chunk is not None and chunk.first >= 4096:
            stop.set()

    with LedgerWriter(tmp_path / "ledger", {}) as ledger:
        sent = send_all(producer, topic, chunks(), ledger=ledger, rate=None, stop=stop, progress=stop_after_two_chunks)

    assert sent.stopped and 0 < sent.acknowledged < EVENTS
    assert in_ledger(tmp_path / "ledger") == in_topic(kafka, topic)
    assert json.loads((tmp_path / "ledger").read_bytes().splitlines()[-1]) == {
        "end": {"acknowledged": sent.acknowledged, "failed": 0, "unknown": 0}
    }


@pytest.mark.stack
def test_a_delivery_that_the_broker_refuses_is_recorded_as_failed(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    producer, _ = open_producer(kafka.bootstrap, topic)
    too_large = Chunk(0, 2, [Planned(Role.REPLAY, None, b"x" * (9 << 20), 0), Planned(Role.REPLAY, None, b"x", 0)])
    with LedgerWriter(tmp_path / "ledger", {}) as ledger:
        sent = send_all(producer, topic, [too_large], ledger=ledger, rate=None, stop=StopSignal())

    assert (sent.acknowledged, sent.failed, sent.unknown) == (1, 1, 0)
    assert len(in_topic(kafka, topic)) == 1
    assert b'{"failed":' in (tmp_path / "ledger").read_bytes()


@pytest.mark.stack
def test_a_rate_is_kept(kafka: Kafka, topic: str) -> None:
    producer, _ = open_producer(kafka.bootstrap, topic)
    started = monotonic()
    sent = send_all(producer, topic, chunks(until=1_000), ledger=None, rate=1_000, stop=StopSignal())

    assert monotonic() - started >= (sent.acknowledged - 20) / 1_000


@pytest.mark.stack
def test_no_topic_is_said_before_anything_is_sent(kafka: Kafka) -> None:
    with pytest.raises(LogUnavailable, match="seam up"):
        open_producer(kafka.bootstrap, "no-such-topic")


def test_no_broker_is_said_before_anything_is_sent() -> None:
    with pytest.raises(LogUnavailable, match="seam up"):
        open_producer("127.0.0.1:1", "transactions", patience_seconds=1)
