"""The table of winners: for every id the one delivery that counts, with its event. It makes a night independent of history.

A run only ever appends its own rows, under its own id; a manifest names the runs it is built on and a reader filters by
them. So a run that died is never seen and a rollback needs nothing restored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as F

from batch_layer.delta_log import files_of, read_files
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

    def with_more(self, events: int, id_checksum: int) -> DayOfWinners:
        return DayOfWinners(self.day, self.events + events, self.id_checksum ^ id_checksum)


@dataclass(frozen=True, slots=True)
class StoredWinners:
    """What a run has in the table of winners."""

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


def stored_winners(table: str, run: RunId) -> StoredWinners:
    """Reads back what a run appended: the table's files, not the frame they were written from."""
    by_partition: Counter[int] = Counter()
    days: dict[date, DayOfWinners] = {}
    for file in files_of(table, str(run)):
        day = date.fromisoformat(file.partition["day"])
        for chunk in read_files(table, [file], ("partition", "id_hash")):
            numbers, counts = np.unique(chunk["partition"].to_numpy(), return_counts=True)
            by_partition.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
            checksum = int(np.bitwise_xor.reduce(chunk["id_hash"].to_numpy()))
            days[day] = days.get(day, DayOfWinners(day, 0, 0)).with_more(chunk.num_rows, checksum)
    return StoredWinners(dict(by_partition), tuple(days[day] for day in sorted(days)))


def _of_runs(runs: Sequence[RunId]) -> Column:
    return F.col("run").isin([str(run) for run in runs])


def _broadcast(frame: DataFrame, count: int) -> DataFrame:
    """Small enough, the new side goes to every executor and history is not shuffled."""
    return F.broadcast(frame) if count <= MOST_BROADCAST_IDS else frame
