"""The table of winners: for every id the one delivery that counts, with its event. It makes a night independent of history.

A run only ever appends its own rows, under its own id; a manifest names the runs it is built on and a reader filters by
them. So a run that died is never seen and a rollback needs nothing restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from batch_layer.delta_log import files_of
from batch_layer.judge import EVENT_COLUMNS, Verdict
from batch_layer.spark_faults import spark_faults
from serving.store.records import RunId

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_BROADCAST_IDS = 2_000_000
_COLUMNS = ("id_hash", "partition", "offset", "generation", "log_time", *EVENT_COLUMNS)


@dataclass(frozen=True, slots=True)
class DayOfWinners:
    """What the views of one event day must add up to."""

    day: date
    events: int
    id_checksum: int


@dataclass(frozen=True, slots=True)
class StoredWinners:
    """What the table holds after a run's append: its own rows by partition, and the days they touch with all their winners."""

    by_partition: dict[int, int]
    days: tuple[DayOfWinners, ...]


def first_deliveries(judged: DataFrame) -> DataFrame:
    return judged.where(F.col("verdict") == Verdict.FIRST.value)


def read_winners(spark: SparkSession, table: str, runs: Sequence[RunId]) -> DataFrame:
    """The winners of these runs and no others."""
    return spark.read.format("delta").load(table).where(_of_runs(runs))


def known_before(spark: SparkSession, table: str, runs: Sequence[RunId], first: DataFrame, count: int) -> DataFrame | None:
    """Those first deliveries (`transaction_id`, `partition`) whose id has won before; None if there are none.

    History is scanned by its 64-bit hashes alone; only days with a hit are read again to compare the ids themselves.
    """
    if not runs or not count:
        return None
    history = read_winners(spark, table, runs)
    hashes = _broadcast(first.select("id_hash"), count)
    with spark_faults(f"Reading {table}"):
        hits = history.join(hashes, "id_hash", "left_semi").select("day").distinct().collect()
        if not hits:
            return None
        suspects = history.where(F.col("day").isin([row.day for row in hits])).select("id_hash", "transaction_id")
        ids = first.select("id_hash", "transaction_id", "partition")
        known = suspects.join(_broadcast(ids, count), ["id_hash", "transaction_id"])
        return known.select("transaction_id", "partition").persist()


def append_winners(first: DataFrame, known: DataFrame | None, table: str, run: RunId) -> None:
    """Appends a run's new winners, in one commit.

    Guarantees: run twice for the same run it leaves one set of rows; rows of a run no manifest names are never read.
    """
    fresh = first if known is None else first.join(known.select("transaction_id"), "transaction_id", "left_anti")
    rows = fresh.select(*_COLUMNS, F.lit(str(run)).alias("run"), F.to_date("event_time").alias("day"))
    writer = rows.write.format("delta").mode("append").partitionBy("day").option("mergeSchema", "true")
    writer = writer.option("delta.dataSkippingStatsColumns", "run").option("txnAppId", str(run)).option("txnVersion", 1)
    with spark_faults(f"Appending to {table}"):
        writer.option("userMetadata", str(run)).save(table)


def stored_winners(spark: SparkSession, table: str, runs: Sequence[RunId], run: RunId, all_days: bool) -> StoredWinners:
    """Reads back what a run appended and the days it touches; every day where `all_days`."""
    winners = read_winners(spark, table, (*runs, run))
    with spark_faults(f"Reading {table}"):
        if not all_days:
            winners = winners.where(F.col("day").isin(sorted({file.partition["day"] for file in files_of(table, str(run))})))
        mine = F.when(F.col("run") == str(run), F.col("partition"))
        groups = winners.groupBy("day", mine.alias("mine")).agg(F.count("*").alias("events"), F.bit_xor("id_hash").alias("id_checksum"))
        rows = groups.collect()
    by_partition: dict[int, int] = {}
    days: dict[date, DayOfWinners] = {}
    for row in rows:
        if row.mine is not None:
            by_partition[row.mine] = by_partition.get(row.mine, 0) + row.events
        before = days.get(row.day, DayOfWinners(row.day, 0, 0))
        days[row.day] = DayOfWinners(row.day, before.events + row.events, before.id_checksum ^ row.id_checksum)
    return StoredWinners(by_partition, tuple(days[day] for day in sorted(days)))


def _of_runs(runs: Sequence[RunId]) -> Column:
    return F.col("run").isin([str(run) for run in runs])


def _broadcast(frame: DataFrame, count: int) -> DataFrame:
    """Small enough, the new side goes to every executor and history is not shuffled."""
    return F.broadcast(frame) if count <= MOST_BROADCAST_IDS else frame
