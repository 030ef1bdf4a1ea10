"""The audit's view of a real topic: committed deliveries only, holes or not, exactly between two vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition

from infra.kafka_log import KafkaLog
from serving.audit.sources import read_topic
from serving.errors import LogDiverged, LogUnavailable, OffsetsExpired
from serving.store.vectors import OffsetVector

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = pytest.mark.stack


def end_of(kafka: Kafka, topic: str) -> OffsetVector:
    with KafkaLog(kafka.bootstrap, topic) as log:
        return log.end()


def send(kafka: Kafka, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "lz4"})
    for value in values:
        producer.produce(topic, value, partition=partition)
    producer.flush(20)


def read(kafka: Kafka, topic: str, since: dict[int, int], until: OffsetVector) -> list[tuple[int, int, bytes | None]]:
    return sorted((each.partition, each.offset, each.value) for each in read_topic(kafka.bootstrap, topic, OffsetVector.of(since), until))


def test_what_is_read_lies_between_the_vectors_in_each_partition(kafka: Kafka, topic: str) -> None:
    for partition in (0, 1):
        send(kafka, topic, [b"%d" % number for number in range(10)], partition)

    found = read(kafka, topic, {0: 4}, OffsetVector.of({0: 6, 1: 2}))
    assert found == [(0, 4, b"4"), (0, 5, b"5"), (1, 0, b"0"), (1, 1, b"1")]


def test_aborted_deliveries_are_not_read_and_markers_do_not_keep_it_waiting(kafka: Kafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"of-{topic}"})
    producer.init_transactions(20)
    for value, commit in ((b"kept", True), (b"aborted", False), (b"kept too", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(20)
        producer.commit_transaction(20) if commit else producer.abort_transaction(20)

    end = end_of(kafka, topic)
    assert end == OffsetVector.of({0: 6})
    assert read(kafka, topic, {}, end) == [(0, 0, b"kept"), (0, 4, b"kept too")]


def test_a_log_that_ends_before_what_is_served_is_said(kafka: Kafka, topic: str) -> None:
    send(kafka, topic, [b"x"])

    with pytest.raises(LogDiverged, match="counts deliveries below 5"):
        read(kafka, topic, {}, OffsetVector.of({0: 5}))


def test_deliveries_that_kafka_no_longer_holds_are_said(kafka: Kafka, topic: str) -> None:
    send(kafka, topic, [b"1", b"2", b"3"])
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 2})

    with pytest.raises(OffsetsExpired, match="--from-dump"):
        read(kafka, topic, {}, end_of(kafka, topic))


def test_no_broker_is_said() -> None:
    with pytest.raises(LogUnavailable, match="seam status"):
        list(read_topic("127.0.0.1:1", "transactions", OffsetVector(), OffsetVector.of({0: 1}), patience_seconds=1))
