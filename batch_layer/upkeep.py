"""Keeps the Delta tables small: many small files become few, and rows that no retained manifest needs go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from batch_layer.delta_log import commits_newest_first, live_files, log_span
from batch_layer.spark_faults import spark_faults
from serving.store.records import Manifest, RunId

if TYPE_CHECKING:
    from delta.tables import DeltaTable
    from pyspark.sql import SparkSession

MOST_FILES = 32
"""Of a partition that grows no more; the newest one, which does, may have four times as many."""
_COMMITS_READ = 500
_KEPT_FOR = timedelta(days=7)
"""Delta's own default: so long a file that was removed stays for those who still read it."""
_DROPPED = "dropped"
_METADATA_OPTION = "spark.databricks.delta.commitInfo.userMetadata"


def compact(spark: SparkSession, table: str, column: str, *, most: int = MOST_FILES) -> tuple[str, ...]:
    """Rewrites the partitions with too many files; returns which. The caller is the table's sole writer.

    Guarantees: rows and their order of commits stay what they were, and so does what a commit says of itself; readers
    go on. Run twice, the second finds nothing to do.
    """
    files = Counter(file.partition[column] for file in live_files(table, commits=_COMMITS_READ))
    newest = max(files, default="")
    crowded = tuple(sorted(value for value, count in files.items() if count > (4 * most if value == newest else most)))
    if crowded:
        from delta.tables import DeltaTable

        with spark_faults(f"Compacting {table}"):
            of_spark = DeltaTable.forPath(spark, table)
            of_spark.optimize().where(f"{column} in ({', '.join(repr(value) for value in crowded)})").executeCompaction()
            _clear(of_spark, table)
    return crowded


def needed_runs(manifests: Iterable[Manifest]) -> frozenset[RunId]:
    """The runs whose rows a retained manifest is built on."""
    return frozenset(run for manifest in manifests for run in manifest.winner_runs)


def drop_dead_rows(open_spark: Callable[[], SparkSession], table: str, needed: frozenset[RunId]) -> tuple[str, ...]:
    """Removes the rows of runs that no manifest needs; returns those runs. The caller is the table's sole writer.

    Guarantees: one commit that says what it dropped; rows of needed runs are not touched. Run twice, the second finds nothing.
    """
    dead = tuple(sorted(_runs_with_rows(table) - {str(run) for run in needed}))
    if dead:
        from delta.tables import DeltaTable
        from pyspark.sql import functions as F

        spark = open_spark()
        with spark_faults(f"Removing dead rows of {table}"), _commits_saying(spark, json.dumps({_DROPPED: dead})):
            of_spark = DeltaTable.forPath(spark, table)
            of_spark.delete(F.col("run").isin(list(dead)))
            _clear(of_spark, table)
    return dead


def _clear(of_spark: DeltaTable, table: str) -> None:
    """Deletes the files that were removed long ago; a younger table has none, and Spark takes seconds to find that out."""
    if log_span(table) > _KEPT_FOR:
        of_spark.vacuum()


def _runs_with_rows(table: str) -> set[str]:
    """The runs that the log says have rows: a run's commit carries its id, a commit that dropped runs carries theirs."""
    dropped: set[str] = set()
    found: set[str] = set()
    for commit in islice(commits_newest_first(table), _COMMITS_READ):
        if commit.user_metadata.startswith("{"):
            dropped.update(json.loads(commit.user_metadata).get(_DROPPED, ()))
        elif commit.user_metadata and commit.added:
            found.add(commit.user_metadata)
    return found - dropped


@contextmanager
def _commits_saying(spark: SparkSession, text: str) -> Iterator[None]:
    spark.conf.set(_METADATA_OPTION, text)
    try:
        yield
    finally:
        spark.conf.unset(_METADATA_OPTION)
