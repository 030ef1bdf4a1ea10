"""After new event rules: the ids that the log held below the frontier, read again and judged by the present rules.

A delivery that was quarantined by the old rules may be an event by the new ones. The batch layer will count it, so its
re-delivery above the frontier must be known here. Nothing is stored: each start reads again while such epochs lie in the horizon.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serving.store.vectors import OffsetVector
from speed_layer.seen import Seen
from speed_layer.source import CONSUMER, steps
from views.lift import lift

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_AT_ONCE = 2_000_000
"""Offsets per read: an id takes 24 bytes here, and each read costs seconds before its first row."""


def read_ids_again(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    start: OffsetVector,
    until: OffsetVector,
    partitions: Sequence[int],
    seen: Seen,
    now: datetime,
) -> int:
    """Adds the ids of [start, until) that `seen` does not hold, and says how many. Both must be held by Kafka."""
    added = 0
    for first, last in steps(start, until, _AT_ONCE):
        reader = spark.read.format("kafka").options(**CONSUMER).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        reader = reader.option("startingOffsets", _positions(topic, first, partitions))
        deliveries = reader.option("endingOffsets", _positions(topic, last, partitions)).load()
        # Filtered here and not in Spark, whose optimiser would copy the whole judgement into the filter.
        ids = lift(deliveries, ()).select("id_hash", "id_hash2", "log_time").toArrow()
        added += _add(ids.drop_null(), seen, now)
    return added


def _positions(topic: str, vector: OffsetVector, partitions: Sequence[int]) -> str:
    return json.dumps({topic: {str(partition): vector[partition] for partition in partitions}})


def _add(rows: pa.Table, seen: Seen, now: datetime) -> int:
    if not rows.num_rows:
        return 0
    pairs = np.column_stack([rows.column(name).to_numpy().view(np.uint64) for name in ("id_hash", "id_hash2")])
    ids = np.unique(pairs, axis=0)
    first, second = ids[:, 0].copy(), ids[:, 1].copy()
    new = ~seen.find(first, second)
    seen.add(first[new], second[new], log_time=pc.max(rows.column("log_time")).as_py(), now=now)
    return int(np.count_nonzero(new))
