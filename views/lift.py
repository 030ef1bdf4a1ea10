"""Lift deliveries into what the views need of them, and fold lifted events in Spark.

Both layers call `lift`; the batch layer also calls `fold_frame`. This and `views.parse` are the only modules here
that import pyspark.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from views.measures import Merge, PartialColumn
from views.parse import parse
from views.view import View

_WIDE = "decimal(38,0)"


def lift(deliveries: DataFrame, views: Sequence[View], *, with_fields: Sequence[str] = ()) -> DataFrame:
    """One row per delivery, without a shuffle: its position, its reason where it is no event, else what the views use of it.

    `deliveries` has the columns of Spark's Kafka source. Columns of an event are null where `reason` is not.
    """
    parsed = parse(deliveries.select("partition", "offset", F.col("timestamp").alias("log_time"), "value"))
    lengths = sorted({view.window.seconds for view in views})
    valid = F.col("reason").isNull()
    event_columns = {
        "id_hash": F.xxhash64("transaction_id"),
        "id_hash2": F.xxhash64(F.lit("seam"), "transaction_id"),
        "event_time": F.col("event_time"),
        **{f"window_{seconds}": _window_start(seconds) for seconds in lengths},
        **{name: F.col(name) for name in _used_fields(views, with_fields)},
    }
    return parsed.select(
        *("partition", "offset", "log_time", "value_hash", "reason", "masked"),
        *(F.when(valid, column).alias(name) for name, column in event_columns.items()),
    )


def fold_frame(view: View, events: DataFrame) -> DataFrame:
    """The cells of lifted valid events, each event given once: key, `window_start`, the view's columns and the event `day`."""
    window = F.col(f"window_{view.window.seconds}")
    cells = events.groupBy(*view.key, window.alias("window_start")).agg(*(_merged(column).alias(column.name) for column in view.columns))
    day = F.to_date(F.timestamp_seconds("window_start")).alias("day")
    return cells.select(*view.key, "window_start", *(column.name for column in view.columns), day)


def _used_fields(views: Sequence[View], with_fields: Sequence[str]) -> list[str]:
    used = {column.field for view in views for column in view.measure_columns if column.field is not None}
    used |= {field for view in views for field in view.key} | set(with_fields)
    return sorted(used - {"id_hash", "event_time"})


def _window_start(seconds: int) -> Column:
    epoch_seconds = F.unix_seconds("event_time")
    return epoch_seconds - epoch_seconds % seconds


def _merged(column: PartialColumn) -> Column:
    value = F.lit(1).cast("bigint") if column.field is None else F.col(column.field)
    match column.merge:
        case Merge.SUM:
            return F.sum(value.cast("decimal(28,0)")).cast(_WIDE) if column.wide else F.sum(value)
        case Merge.MIN:
            return F.min(value)
        case Merge.MAX:
            return F.max(value)
        case Merge.XOR:
            return F.bit_xor(value)
