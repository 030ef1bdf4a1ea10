"""Judges deliveries: which delivery of an id is its first, which repeats it, which cannot be an event.

The order is the protocol's: earliest generation, then least (`log_time`, partition, offset). Reads frames, writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from serving.store.records import Generation, QuarantineRow
from serving.store.vectors import OffsetVector
from views.event import EVENT_FIELDS
from views.lift import lift

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

EVENT_COLUMNS = tuple(field.name for field in EVENT_FIELDS)
_ORDER = ("generation", "log_time", "partition", "offset")
MOST_AT_ONCE = 100_000
_QUARANTINE_SLICE = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Verdict(StrEnum):
    FIRST = "first"
    """The first delivery of its id among those judged; a winner unless history has the id."""
    REPEAT = "repeat"
    QUARANTINED = "quarantined"
    COPY = "copy"
    """A second row of the same position: not a delivery at all."""


@dataclass(frozen=True, slots=True)
class Judged:
    """How many deliveries of one partition got which verdict."""

    partition: int
    first: int = 0
    repeat: int = 0
    quarantined: int = 0
    copies: int = 0
    strays: int = 0
    """Deliveries that no generation holds."""


def judge(deliveries: DataFrame, generations: Sequence[Generation]) -> DataFrame:
    """One row per row given, with its generation, its event columns and its `verdict`. One shuffle, by id."""
    lifted = lift(deliveries, (), with_fields=EVENT_COLUMNS)
    lone = F.col("transaction_id").isNull()
    same_id = Window.partitionBy("transaction_id", F.when(lone, F.col("partition")), F.when(lone, F.col("offset"))).orderBy(*_ORDER)
    ranked = _with_generation(lifted, generations).withColumns(
        {
            "rank": F.row_number().over(same_id),
            "is_copy": F.coalesce(
                (F.lag("partition").over(same_id) == F.col("partition")) & (F.lag("offset").over(same_id) == F.col("offset")),
                F.lit(False),
            ),
        }
    )
    verdict = (
        F.when(F.col("is_copy"), F.lit(Verdict.COPY.value))
        .when(F.col("reason").isNotNull(), F.lit(Verdict.QUARANTINED.value))
        .when(F.col("rank") == 1, F.lit(Verdict.FIRST.value))
        .otherwise(F.lit(Verdict.REPEAT.value))
    )
    kept = ("partition", "offset", "log_time", "generation", "reason", "masked", "id_hash", *EVENT_COLUMNS)
    return ranked.select(*kept, verdict.alias("verdict"))


def count_verdicts(judged: DataFrame) -> list[Judged]:
    """How the deliveries of each partition were judged."""
    columns = {"first": Verdict.FIRST, "repeat": Verdict.REPEAT, "quarantined": Verdict.QUARANTINED, "copies": Verdict.COPY}
    counts = [F.count_if(F.col("verdict") == verdict.value).alias(name) for name, verdict in columns.items()]
    counts.append(F.count_if(F.col("generation").isNull()).alias("strays"))
    return [Judged(**row.asDict()) for row in judged.groupBy("partition").agg(*counts).orderBy("partition").collect()]


def quarantined(judged: DataFrame, count: int) -> Iterator[list[QuarantineRow]]:
    """The `count` deliveries that cannot be events, in slices that fit in memory."""
    columns = ("partition", "offset", "reason", "masked", F.unix_micros("log_time").alias("micros"))
    rows = judged.where(F.col("verdict") == Verdict.QUARANTINED.value).select(*columns)
    # As Arrow they come in one job; only very many are fetched task by task.
    found = iter(rows.toArrow().to_pylist()) if count <= MOST_AT_ONCE else (row.asDict() for row in rows.toLocalIterator())
    while some := list(islice(found, _QUARANTINE_SLICE)):
        yield [QuarantineRow(row["partition"], row["offset"], row["reason"], row["masked"], _instant(row["micros"])) for row in some]


def _instant(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _with_generation(lifted: DataFrame, generations: Sequence[Generation]) -> DataFrame:
    """Adds the generation of each position: null outside all of them."""
    if len(generations) == 1:  # the usual night, whose deliveries were read by that generation's own edges
        return lifted.withColumn("generation", F.lit(generations[0].generation))
    edges = [
        (partition, generation.start[partition], end, generation.generation)
        for generation in generations
        for partition, end in generation.cut or OffsetVector()
        if end > generation.start[partition]
    ]
    names = ("edge_partition", "edge_start", "edge_end", "generation")
    types = (pa.int32(), pa.int64(), pa.int64(), pa.int32())
    # As Arrow it becomes a literal relation, so that no job runs for it.
    columns = [pa.array([edge[place] for edge in edges], of_type) for place, of_type in enumerate(types)]
    table = F.broadcast(lifted.sparkSession.createDataFrame(pa.table(columns, names=names)))
    same_partition = F.col("partition") == F.col("edge_partition")
    inside = same_partition & (F.col("offset") >= F.col("edge_start")) & (F.col("offset") < F.col("edge_end"))
    return lifted.join(table, inside, "left").drop(*names[:3])
