"""Deliveries that Kafka no longer holds, read from the master dataset in bounded micro-batches like those of the stream.

Knows the layout of the master dataset's table and what its commits say about how far it reaches; never writes to it.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from serving.errors import OffsetsExpired
from serving.store.vectors import OffsetVector
from speed_layer.source import steps
from views.lift import lift
from views.view import View

if TYPE_CHECKING:
    import pyarrow as pa
    from delta.tables import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession


def master_micro_batches(
    spark: SparkSession, table: str, topic_id: str, start: OffsetVector, until: OffsetVector, views: Sequence[View], most: int
) -> Iterator[tuple[pa.Table, OffsetVector]]:
    """The lifted deliveries of [start, until) with the end of each micro-batch; `OffsetsExpired` where the table does not reach."""
    from delta.tables import DeltaTable

    if not DeltaTable.isDeltaTable(spark, table):
        raise _not_held(table, "there is no master dataset", start, until)
    begin, reach = _held(DeltaTable.forPath(spark, table), topic_id)
    wanted = {p: end for p, end in until if end > start[p]}
    if any(begin[p] > start[p] for p in wanted):
        raise _not_held(table, f"the master dataset begins at {begin}", start, until)
    if not reach.reaches(OffsetVector.of(wanted)):
        raise _not_held(table, f"the master dataset reaches {reach}", start, until)
    rows = spark.read.format("delta").load(table)
    deliveries = rows.where(rows.topic_id == topic_id).select("partition", "offset", rows.log_time.alias("timestamp"), "value")
    lifted = lift(deliveries, views)  # once: to build its plan takes seconds; the ranges below still reach the files
    for first, end in steps(start, until, most):
        yield lifted.where(_positions(lifted, first, end)).toArrow(), end


def _positions(rows: DataFrame, start: OffsetVector, end: OffsetVector) -> Column:
    """Ranges, not lists: the table's file statistics then leave out most files."""
    partition, position = rows["partition"], rows["offset"]
    ranges = [(partition == p) & (position >= start[p]) & (position < last) for p, last in end if last > start[p]]
    return functools.reduce(operator.or_, ranges)


def _held(table: DeltaTable, topic_id: str) -> tuple[OffsetVector, OffsetVector]:
    """From where to where the table holds every delivery: by the newest commit that carries vectors, else by the rows."""
    for row in table.history().select("userMetadata").where("userMetadata IS NOT NULL").toLocalIterator():
        try:
            said = json.loads(row.userMetadata)
            starts, vectors = said["starts"], said["vectors"]
        except (ValueError, KeyError, TypeError):
            continue
        return OffsetVector.from_json(starts.get(topic_id, {})), OffsetVector.from_json(vectors.get(topic_id, {}))
    ends = table.toDF().where(f"topic_id = '{topic_id}'").groupBy("partition").agg({"offset": "max"}).collect()
    # Rows cannot say where the table begins, as offsets have holes.
    return OffsetVector(), OffsetVector.of({row[0]: row[1] + 1 for row in ends})


def _not_held(table: str, why: str, start: OffsetVector, until: OffsetVector) -> OffsetsExpired:
    return OffsetsExpired(
        f"Deliveries from {start} to {until} were never read, Kafka has deleted them, and {why} ({table}).",
        untouched="Nothing was written.",
        fix="They are lost to this line unless another copy of the master dataset holds them: SEAM_MASTER_DATASET.",
        start=start.to_json(),
        until=until.to_json(),
    )
