"""The master dataset: every committed delivery once, whatever ends an ingest, and never past a log that changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition

from batch_layer import night
from batch_layer.delta_log import commits_newest_first
from batch_layer.ingest import catch_up, plan_ingest
from batch_layer.master_dataset import read_reach
from batch_layer.upkeep import compact
from batch_layer.workplace import Workplace
from batch_layer.writer_lock import sole_writer
from infra.crash import CrashPoint
from serving.errors import LogDiverged, NightlyLocked, OffsetsExpired
from serving.store import database
from serving.store.vectors import OffsetVector
from tests.batch.hand_fed_line import DAY_ONE, HandFedLine, day_of_events, event

pytestmark = pytest.mark.stack


class Died(Exception):
    """Stands for the end of the process."""


class Fall(CrashPoint):
    def reach(self, step: str) -> None:
        if step == self._step:
            raise Died(step)


@pytest.fixture
def place(line: HandFedLine) -> Iterator[Workplace]:
    with line.workplace() as opened:
        yield opened


def rows_in(place: Workplace) -> list[Any]:
    rows = place.spark().read.format("delta").load(place.tables.master_dataset)
    return sorted(
        (row.partition, row.offset, row.value and bytes(row.value)) for row in rows.select("partition", "offset", "value").collect()
    )


def test_the_master_dataset_holds_every_delivery_once_in_bounded_commits(line: HandFedLine, place: Workplace) -> None:
    sent = day_of_events(0, 50, DAY_ONE)
    line.send(sent)
    table, seen = place.tables.master_dataset, []
    plan = plan_ingest(table, place.log, place.info, place.spark)
    done = catch_up(plan, place.log, place.info, place.spark, most=20, progress=lambda *said: seen.append(said), crash=CrashPoint())
    assert done.commits == -(-len(sent) // 20) == len(list(commits_newest_first(table))) and done.deliveries == len(sent)
    assert seen[-1] == (len(sent), len(sent)) and done.retention_margin == 0
    assert sorted(value or b"" for _, _, value in rows_in(place)) == sorted(value or b"" for _, value in sent)
    columns = place.spark().read.format("delta").load(table).dtypes
    assert columns == [
        ("topic_id", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("log_time", "timestamp"),
        ("key", "binary"),
        ("value", "binary"),
        ("log_date", "date"),
    ]
    again = night.ingest(place)
    assert (again.commits, again.deliveries, again.until) == (0, 0, line.end())


def test_an_ingest_that_died_after_its_commit_is_continued_and_not_repeated(line: HandFedLine, place: Workplace) -> None:
    line.send([(0, event(1, DAY_ONE)), (3, event(2, DAY_ONE))])
    with line.workplace(crash=Fall("mid_ingest")) as dying, pytest.raises(Died):
        night.ingest(dying)
    line.send([(0, event(3, DAY_ONE))])
    assert night.ingest(place).deliveries == 1
    assert [row[:2] for row in rows_in(place)] == [(0, 0), (0, 1), (3, 0)]


def test_aborted_transactions_and_trailing_markers_are_passed_over(line: HandFedLine, place: Workplace) -> None:
    producer = Producer({"bootstrap.servers": line.bootstrap, "transactional.id": f"t-{line.topic}"})
    producer.init_transactions(30)
    for number, commit in enumerate((True, False, True, False)):
        producer.begin_transaction()
        producer.produce(line.topic, value=event(number, DAY_ONE), partition=1)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    end = line.end()
    assert end == OffsetVector.of({1: 8})
    assert night.ingest(place).deliveries == 2
    assert night.ingest(place).commits == 0
    assert [row[:2] for row in rows_in(place)] == [(1, 0), (1, 4)]
    line.speed()
    assert line.night().counted == 2
    line.assert_exact()


def test_without_a_vector_in_its_log_the_table_is_continued_after_its_greatest_offsets(line: HandFedLine, place: Workplace) -> None:
    line.send([(0, event(1, DAY_ONE)), (0, event(2, DAY_ONE)), (2, None)])
    night.ingest(place)
    table = place.tables.master_dataset
    stated = read_reach(table, place.spark)
    for commit in commits_newest_first(table):
        path = f"{table}/_delta_log/{commit.version:020}.json"
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            file.write(text.replace("seam_ingest", "forgotten"))
        Path(f"{table}/_delta_log/.{commit.version:020}.json.crc").unlink(missing_ok=True)
    found = read_reach(table, place.spark)
    assert (found.vectors, found.markers, found.append) == (stated.vectors, stated.markers, stated.append)
    line.send([(0, event(3, DAY_ONE))])
    assert night.ingest(place).deliveries == 1 and len(rows_in(place)) == 4


def test_compaction_keeps_rows_and_reach_and_the_next_ingest_goes_on(line: HandFedLine, place: Workplace) -> None:
    table = place.tables.master_dataset
    for number in range(3):
        line.send([(partition, event(number * 4 + partition, DAY_ONE)) for partition in range(4)])
        night.ingest(place)
    before, reach = rows_in(place), read_reach(table, place.spark)
    assert len(compact(place.spark(), table, "log_date", most=2)) == 1
    assert compact(place.spark(), table, "log_date", most=2) == ()
    assert rows_in(place) == before and read_reach(table, place.spark) == reach
    line.send([(0, event(99, DAY_ONE))])
    assert night.ingest(place).deliveries == 1


def test_files_that_were_removed_are_looked_for_once_the_log_is_older_than_they_are_kept(line: HandFedLine, place: Workplace) -> None:
    table = place.tables.master_dataset
    for number in range(2):
        line.send([(0, event(number, DAY_ONE))])
        night.ingest(place)
    assert compact(place.spark(), table, "log_date", most=0) and not vacuumed(place)
    first = Path(f"{table}/_delta_log/{0:020}.json")
    long_ago = first.stat().st_mtime - timedelta(days=8).total_seconds()
    os.utime(first, (long_ago, long_ago))
    line.send([(0, event(2, DAY_ONE))])
    night.ingest(place)
    assert compact(place.spark(), table, "log_date", most=0) and vacuumed(place)


def vacuumed(place: Workplace) -> bool:
    history = place.spark().sql(f"DESCRIBE HISTORY delta.`{place.tables.master_dataset}`")
    return "VACUUM END" in {row.operation for row in history.collect()}


def test_what_kafka_deleted_before_it_was_ingested_is_an_error_and_not_a_gap(line: HandFedLine, place: Workplace) -> None:
    line.send([(0, event(number, DAY_ONE)) for number in range(5)])
    night.ingest(place)
    line.send([(0, event(number, DAY_ONE)) for number in range(5, 9)])
    with KafkaAdminClient(bootstrap_servers=line.bootstrap) as admin:
        admin.delete_records({TopicPartition(line.topic, 0): 7})
    with pytest.raises(OffsetsExpired, match="offsets 5 to 6"):
        night.ingest(place)
    assert len(rows_in(place)) == 5


def test_a_topic_that_was_made_again_is_refused(line: HandFedLine, place: Workplace, kafka: Any) -> None:
    line.send([(0, event(1, DAY_ONE))])
    night.ingest(place)
    line.connection.execute("UPDATE line_main.line SET topic = %s", (kafka.new_topic(),))
    with line.workplace() as moved, pytest.raises(LogDiverged, match="deleted and made again"):
        night.ingest(moved)


def test_a_second_writer_is_refused_also_by_another_database(line: HandFedLine, place: Workplace, database_url: str) -> None:
    table = place.tables.master_dataset
    with (
        sole_writer(place.connection, table),
        database.connect(database_url) as other,
        pytest.raises(NightlyLocked),
        sole_writer(other, table),
    ):
        pass
    with sole_writer(place.connection, table):
        pass
