"""What the log loses or becomes while the speed layer starts or runs: never passed over, never counted as something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from infra.kafka_log import KafkaLog, ensure_topic
from serving.errors import LogDiverged, OffsetsExpired, StreamFailed
from serving.store.vectors import OffsetVector
from speed_layer.start import first_offsets
from tests.conftest import Kafka
from tests.speed.speed_line import SpeedLine, end_of, event, mixed, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


@pytest.fixture
def line(home: Path, kafka: Kafka, fresh_database_url: str, topic: str, spark: SparkSession) -> SpeedLine:
    return SpeedLine.of(home, kafka.bootstrap, fresh_database_url, topic, spark)


def test_deliveries_deleted_after_the_log_was_checked_stop_the_start(home: Path, kafka: Kafka, fresh_database_url: str, topic: str) -> None:
    line = SpeedLine.of(home, kafka.bootstrap, fresh_database_url, topic)
    line.send((0, event(number)) for number in range(20))
    _delete_below(line, OffsetVector.of({0: 12}))
    with KafkaLog(kafka.bootstrap, topic) as log:
        assert first_offsets(log, OffsetVector.of({0: 3}), OffsetVector.of({0: 12})) == {0: 12, 1: 0, 2: 0, 3: 0}
        with pytest.raises(StreamFailed, match="deleted"):
            first_offsets(log, OffsetVector.of({0: 3}), OffsetVector.of({0: 11}))


def test_a_master_dataset_that_begins_after_the_frontier_does_not_fill_the_gap(line: SpeedLine, kafka: Kafka, spark: SparkSession) -> None:
    line.send(mixed(0, 40))
    line.catch_up()
    before = line.frontier
    line.send(mixed(40, 200))
    end = end_of(line)
    begins = OffsetVector.of({partition: before[partition] + 5 for partition in range(4)})
    _write_master(line, spark, begins, end)
    _delete_below(line, OffsetVector.of({partition: until - 10 for partition, until in end}))
    with pytest.raises(OffsetsExpired, match="begins at"):
        line.catch_up(from_master=True)
    assert line.frontier == before


def test_a_topic_made_again_between_two_micro_batches_is_not_counted(
    home: Path, kafka: Kafka, fresh_database_url: str, topic: str, spark: SparkSession
) -> None:
    line = SpeedLine.of(home, kafka.bootstrap, fresh_database_url, topic, spark, trigger_ms=6_000, max_events_per_epoch=100_000)
    line.send((0, event(number)) for number in range(8))
    running = line.running(take_over=True)
    with running:
        running.reach(end_of(line))
        before = line.frontier
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([topic])[topic].result(30)
        wait_until(lambda: topic not in admin.list_topics(timeout=10).topics)
        ensure_topic(kafka.bootstrap, topic, 4)
        line.send((0, event(number)) for number in range(1_000, 1_200))
        wait_until(lambda: running.failure is not None or line.frontier != before)
    assert line.frontier == before
    assert isinstance(running.failure, LogDiverged), running.failure


def _delete_below(line: SpeedLine, beginning: OffsetVector) -> None:
    admin = AdminClient({"bootstrap.servers": line.bootstrap})
    for done in admin.delete_records([TopicPartition(line.settings.topic, p, offset) for p, offset in beginning]).values():
        done.result(30)


def _write_master(line: SpeedLine, spark: SparkSession, begins: OffsetVector, ends: OffsetVector) -> None:
    """As ingest leaves it where its first append began later than the line's frontier."""
    with KafkaLog(line.bootstrap, line.settings.topic) as log:
        topic_id = log.topic_id()
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", line.bootstrap).option("subscribe", line.settings.topic)
    positions = {str(partition): begins[partition] for partition in range(4)}
    deliveries = rows.option("startingOffsets", json.dumps({line.settings.topic: positions})).load()
    said = {"starts": {topic_id: begins.to_json()}, "vectors": {topic_id: ends.to_json()}}
    deliveries.select(
        F.lit(topic_id).alias("topic_id"),
        *("partition", "offset", F.col("timestamp").alias("log_time"), "key", "value"),
        F.to_date("timestamp").alias("log_date"),
    ).write.format("delta").option("userMetadata", json.dumps(said)).save(line.settings.master_dataset_path)
