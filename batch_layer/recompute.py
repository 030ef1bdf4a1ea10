"""Recompute: from the deliveries new to a run to its winners and the exact cells of every day they touch.

Reads the master dataset and the winners of the run's base; writes only rows under the run's own id, so that nothing
anyone reads changes before the run is published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from batch_layer.judge import Judged, count_verdicts, judge, quarantined
from batch_layer.master_dataset import read_deliveries
from batch_layer.plan import Scope
from batch_layer.results import append_results
from batch_layer.spark_faults import spark_faults
from batch_layer.tables import Tables
from batch_layer.winners import DayOfWinners, append_winners, first_deliveries, known_before, read_winners, stored_winners
from infra.crash import CrashPoint
from serving.store.records import QuarantineRow
from views.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class PartitionAccount:
    """Where the deliveries of one partition went, and what the table of winners holds of them."""

    judged: Judged
    known: int
    """First among the new ones, but their id had won before."""
    won: int
    """Rows that the run has in the table of winners."""

    @property
    def read(self) -> int:
        return self.judged.first + self.judged.repeat + self.judged.quarantined

    @property
    def duplicates(self) -> int:
        return self.judged.repeat + self.known


@dataclass(frozen=True, slots=True)
class Recomputed:
    partitions: tuple[PartitionAccount, ...]
    days: tuple[DayOfWinners, ...]
    """The days the new winners touch, with those winners."""

    @property
    def touched(self) -> tuple[date, ...]:
        return tuple(each.day for each in self.days)


def recompute(
    spark: SparkSession,
    scope: Scope,
    tables: Tables,
    topic_id: str,
    views: Sequence[View],
    *,
    keep: Callable[[list[QuarantineRow]], object],
    crash: CrashPoint,
) -> Recomputed:
    """Appends the run's winners and its views' cells; `keep` takes the deliveries that cannot be events.

    Guarantees: run twice for one run it leaves one set of rows; if it dies, its rows stay unread until they expire.
    """
    verdicts, known = _win(spark, scope, tables, topic_id, keep) if scope.offsets else ([], {})
    crash.reach("after_winners")
    stored = stored_winners(tables.winners, scope.run)
    _fold(spark, scope, tables, [each.day for each in stored.days], views)
    crash.reach("after_results")
    accounts = (PartitionAccount(each, known.get(each.partition, 0), stored.by_partition.get(each.partition, 0)) for each in verdicts)
    return Recomputed(tuple(accounts), stored.days)


def _win(
    spark: SparkSession, scope: Scope, tables: Tables, topic_id: str, keep: Callable[[list[QuarantineRow]], object]
) -> tuple[list[Judged], dict[int, int]]:
    """Judges the new deliveries and appends their winners; returns the verdicts and the known ids by partition."""
    deliveries = read_deliveries(spark, tables.master_dataset, topic_id, scope.start, scope.cut)
    judged = judge(deliveries, scope.generations).persist()
    known = None
    try:
        with spark_faults(f"Judging deliveries of {tables.master_dataset}"):
            verdicts = count_verdicts(judged)
            if broken := sum(each.quarantined for each in verdicts):
                for rows in quarantined(judged, broken):
                    keep(rows)
            first = first_deliveries(judged)
            known = known_before(spark, tables.winners, scope.runs, first, sum(each.first for each in verdicts))
            append_winners(first, known, tables.winners, scope.run)
            return verdicts, _by_partition(known) if known is not None else {}
    finally:
        judged.unpersist()
        if known is not None:
            known.unpersist()


def _fold(spark: SparkSession, scope: Scope, tables: Tables, touched: Sequence[date], views: Sequence[View]) -> None:
    """Appends each view's cells, side by side: a view's fold leaves cores idle while it commits."""
    winners = read_winners(spark, tables.winners, (*scope.runs, scope.run))
    of_touched = winners.where(F.col("day").isin(list(touched)))
    due = [view for view in views if touched or view.name in scope.every_day]
    with ThreadPoolExecutor(max_workers=max(1, len(due))) as pool:
        folds = [
            pool.submit(append_results, view, winners if view.name in scope.every_day else of_touched, tables.of_view(view), scope.run)
            for view in due
        ]
        for fold in folds:
            fold.result()


def _by_partition(known: DataFrame) -> dict[int, int]:
    return {row.partition: row["count"] for row in known.groupBy("partition").count().collect()}
