"""The result tables: one Delta table per view's logic, the exact cells of whole event days, by run.

Written by Spark, read back as Arrow without it: the store loads segments from here, a day at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from batch_layer.delta_log import AddedFile, files_of, read_files
from batch_layer.spark_faults import spark_faults
from serving.store.records import RunId
from views.view import EVENTS, ID_CHECKSUM, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class DayOfCells:
    """One view's cells of one event day, as the result table holds them."""

    day: date
    rows: int
    events: int
    id_checksum: int


def append_results(view: View, winners: DataFrame, table: str, run: RunId) -> None:
    """Folds winners of whole days into the view's cells and appends them, each day as sorted files, in one commit.

    Guarantees: run twice for the same run it leaves one set of rows; rows of a run no manifest names are never loaded.
    """
    from pyspark.sql import functions as F

    from views.lift import fold_frame

    seconds = F.unix_seconds("event_time")
    length = view.window.seconds
    cells = fold_frame(view, winners.withColumn(f"window_{length}", seconds - seconds % length))
    ordered = cells.withColumn("run", F.lit(str(run))).sortWithinPartitions("day", *view.key, "window_start")
    writer = ordered.write.format("delta").mode("append").partitionBy("day").option("userMetadata", str(run))
    # Nothing ever filters on cells, so no statistics of them are kept.
    writer = writer.option("delta.dataSkippingNumIndexedCols", 0)
    with spark_faults(f"Appending to {table}"):
        writer.option("txnAppId", str(run)).option("txnVersion", 1).save(table)


def days_of(table: str, run: RunId) -> dict[date, tuple[AddedFile, ...]]:
    """The files a run appended, by event day."""
    days: dict[date, tuple[AddedFile, ...]] = {}
    for file in sorted(files_of(table, str(run)), key=lambda file: file.path):
        day = date.fromisoformat(file.partition["day"])
        days[day] = (*days.get(day, ()), file)
    return dict(sorted(days.items()))


def count_cells(table: str, day: date, files: Sequence[AddedFile]) -> DayOfCells:
    """Adds up one day's cells, as a check of the table and not of the frame it came from."""
    rows = events = checksum = 0
    for chunk in read_files(table, files, (EVENTS.name, ID_CHECKSUM.name)):
        rows += chunk.num_rows
        events += pc.sum(chunk[EVENTS.name]).as_py() or 0
        checksum ^= int(np.bitwise_xor.reduce(chunk[ID_CHECKSUM.name].to_numpy()))
    return DayOfCells(day, rows, events, checksum)
