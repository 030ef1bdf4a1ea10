"""Lives of the speed layer on real Kafka, Spark and PostgreSQL, compared with a naive recount of the topic."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from infra.kafka_log import KafkaLog, ensure_topic
from serving.errors import BadSetting, Fenced, LogDiverged, OffsetsExpired
from serving.store.vectors import OffsetVector
from speed_layer.run import keep_running
from tests.conftest import Kafka
from tests.speed.speed_line import POISON, SpeedLine, end_of, event, mixed, totals, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


@pytest.fixture
def line(home: Path, kafka: Kafka, fresh_database_url: str, topic: str, spark: SparkSession) -> SpeedLine:
    return SpeedLine.of(home, kafka.bootstrap, fresh_database_url, topic, spark)


def test_every_delivery_is_counted_once_or_explained_and_a_second_life_goes_on_from_there(line: SpeedLine) -> None:
    first = mixed(0, 1_500)
    line.send([*first[:900], *((at % 4, value) for at, value in enumerate(POISON)), *first[900:]])
    committed = line.catch_up()
    assert len(committed) > 3
    assert totals(committed) == (len(first) + len(POISON), 1_500, len(first) - 1_500, len(POISON))
    report = line.audited()
    assert report.exact, report.to_json()
    assert line.source_position == line.frontier == end_of(line)

    again = [(3 - partition, value) for partition, value in first[:300]]
    line.send([*again, *mixed(1_500, 200)])
    committed = line.catch_up()
    assert totals(committed)[0] == 300 + len(mixed(1_500, 200)), "a life that ended well leaves nothing to be read again"
    assert line.audited().exact
    assert not list(line.settings.run_folder.glob("speed-checkpoint-*"))


def test_a_source_that_goes_back_is_skipped_by_position_and_an_added_partition_begins_at_its_start(line: SpeedLine, kafka: Kafka) -> None:
    line.send(mixed(0, 600))
    line.catch_up()
    line.move_source_position(OffsetVector.of({0: 5, 2: 1}))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(line.settings.topic, 5)])[line.settings.topic].result(30)
    wait_until(lambda: _partitions(line) == 5)
    line.send([*mixed(600, 100), *((4, event(number)) for number in range(650, 720))])
    committed = line.catch_up()
    assert totals(committed)[0] == len(mixed(600, 100)) + 70
    assert line.frontier[4] == 70
    assert line.audited().exact


def test_after_new_event_rules_the_ids_below_the_frontier_are_read_again_from_the_log(line: SpeedLine) -> None:
    line.send(mixed(0, 600))
    line.catch_up()
    # As if these deliveries had been quarantined by older rules: counted by no present view, and never seen.
    line.query("UPDATE {s}.epochs SET folded = '{older}'")
    line.query("DELETE FROM {s}.seen_ids")
    line.send([*((1, event(number)) for number in range(600)), *((2, event(number)) for number in range(600, 650))])
    assert totals(line.catch_up()) == (650, 50, 600, 0)
    line.send([(3, event(number)) for number in range(300, 660)])
    assert totals(line.catch_up()) == (360, 10, 350, 0), "the next start reads them again, as such epochs still lie in the horizon"
    assert line.audited().exact


def _partitions(line: SpeedLine) -> int:
    with KafkaLog(line.bootstrap, line.settings.topic) as log:
        return len(log.partitions())


def test_it_catches_up_with_a_log_that_ends_in_transaction_markers(line: SpeedLine) -> None:
    producer = Producer({"bootstrap.servers": line.bootstrap, "transactional.id": line.settings.topic})
    producer.init_transactions(30)
    for numbers, commit in ((range(40), True), (range(40, 80), False), (range(30, 90), True)):
        producer.begin_transaction()
        for number in numbers:
            producer.produce(line.settings.topic, event(number), partition=number % 4)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    committed = line.catch_up()
    assert totals(committed) == (100, 90, 10, 0)
    assert line.frontier == end_of(line)
    assert line.audited().exact


def test_a_second_speed_layer_is_refused_unless_it_takes_over_and_then_the_first_is_fenced(line: SpeedLine) -> None:
    line.send(mixed(0, 300))
    with line.running() as first:
        first.reach(end_of(line))
        with pytest.raises(Fenced) as refused:
            line.catch_up(take_over=False)
        assert "--take-over" in refused.value.fix
        assert first.failure is None
        line.send(mixed(300, 300))
        line.catch_up()
        first.wait_for_end()
        assert isinstance(first.failure, Fenced)
    assert line.audited().exact


def test_a_lost_database_connection_starts_it_again_and_nothing_counts_twice(line: SpeedLine, caplog: pytest.LogCaptureFixture) -> None:
    line.send(mixed(0, 300))
    layer = line.layer()
    cut = [False]

    def cut_once(committed: object) -> None:
        line.committed.append(committed)  # type: ignore[arg-type]
        if len(line.committed) == 2 and not cut[0]:
            cut[0] = True
            line.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'seam speed'")

    from dataclasses import replace
    from threading import Thread

    layer = replace(layer, watch=cut_once)
    runner = Thread(target=keep_running, args=(layer,))
    with caplog.at_level(logging.WARNING):
        runner.start()
        wait_until(lambda: line.frontier == end_of(line))
        line.send(mixed(300, 300))
        wait_until(lambda: cut[0] and line.frontier == end_of(line))
        layer.stop.set()
        runner.join(60)
    assert "starting again failure=StoreUnavailable" in caplog.text
    assert line.audited().exact


def test_another_topic_of_that_name_or_other_bytes_stop_it_before_anything_is_written(line: SpeedLine, kafka: Kafka) -> None:
    line.send(mixed(0, 40))
    line.catch_up()
    before = line.query("SELECT until, epoch FROM {s}.frontier")

    markers = line.query("SELECT markers::text FROM {s}.frontier")[0][0]
    line.query("""UPDATE {s}.frontier SET markers = jsonb_set(markers, '{0,value_hash}', '1')""")
    with pytest.raises(LogDiverged):
        line.catch_up()
    line.query(f"UPDATE {{s}}.frontier SET markers = '{markers}'")

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([line.settings.topic])[line.settings.topic].result(30)
    wait_until(lambda: line.settings.topic not in admin.list_topics(timeout=10).topics)
    ensure_topic(kafka.bootstrap, line.settings.topic, 4)
    line.send(mixed(0, 80))
    with pytest.raises(LogDiverged) as diverged:
        line.catch_up()
    assert diverged.value.fix
    assert line.query("SELECT until, epoch FROM {s}.frontier") == before


def test_what_kafka_deleted_comes_from_the_master_dataset_or_stops_it(line: SpeedLine, kafka: Kafka, spark: SparkSession) -> None:
    line.send(mixed(0, 500))
    line.catch_up()
    line.send([*mixed(500, 900), (1, b"{"), (2, None)])
    end = end_of(line)
    everything = list(line.log(OffsetVector(), end))
    _write_master(line, spark)
    gone = OffsetVector.of({partition: offset - 30 for partition, offset in end})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for done in admin.delete_records([TopicPartition(line.settings.topic, p, offset) for p, offset in gone]).values():
        done.result(30)

    before = line.frontier
    with pytest.raises(OffsetsExpired) as expired:
        line.catch_up()
    assert "--from-master" in expired.value.fix
    assert line.frontier == before

    committed = line.catch_up(from_master=True)
    assert len(committed) > 2
    assert line.frontier == end
    report = line.audited(lambda since, until: everything)
    assert report.exact, report.to_json()


def _write_master(line: SpeedLine, spark: SparkSession) -> None:
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", line.bootstrap).option("subscribe", line.settings.topic).load()
    with KafkaLog(line.bootstrap, line.settings.topic) as log:
        topic_id = F.lit(log.topic_id()).alias("topic_id")
    log_time = F.col("timestamp").alias("log_time")
    deliveries = rows.select(topic_id, "partition", "offset", log_time, "key", "value", F.to_date("timestamp").alias("log_date"))
    deliveries.write.format("delta").partitionBy("log_date").save(line.settings.master_dataset_path)


def test_a_compacted_topic_is_refused_and_create_time_is_warned_of(line: SpeedLine, kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    set_config = _config_setter(kafka, line.settings.topic)
    set_config("message.timestamp.type", "CreateTime")
    line.send(mixed(0, 20))
    with caplog.at_level(logging.WARNING):
        line.catch_up()
    assert "CreateTime" in caplog.text
    assert line.audited().exact
    set_config("cleanup.policy", "compact")
    with pytest.raises(BadSetting):
        line.catch_up()


def _config_setter(kafka: Kafka, topic: str) -> Callable[[str, str], None]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def set_config(name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    return set_config
