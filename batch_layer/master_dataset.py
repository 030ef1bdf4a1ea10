"""The master dataset: every delivery of the log, as raw bytes with its position, in one append-only Delta table.

Owns the table's layout and what its commits say about how far it reaches. Knows nothing of events, views or seams.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batch_layer.delta_log import commits_newest_first, table_exists
from batch_layer.spark_faults import spark_faults
from serving.store.records import Marker
from serving.store.vectors import OffsetVector

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

APPEND_APP = "seam-ingest"
_FORMAT = 1
_TABLE_PROPERTIES = {
    "delta.appendOnly": "true",
    # Positions decide which files a night reads; keys and values are never filtered on.
    "delta.dataSkippingStatsColumns": "topic_id,partition,offset,log_time",
}


@dataclass(frozen=True, slots=True)
class Reach:
    """What the master dataset holds: for each incarnation of the topic from where to where; and its last append."""

    starts: Mapping[str, OffsetVector] = field(default_factory=dict)
    vectors: Mapping[str, OffsetVector] = field(default_factory=dict)
    markers: Mapping[str, Mapping[int, Marker]] = field(default_factory=dict)
    append: int = 0
    commit: str = ""

    def until(self, topic_id: str) -> OffsetVector:
        return self.vectors.get(topic_id, OffsetVector())

    def holds(self, topic_id: str, start: OffsetVector, until: OffsetVector) -> bool:
        """True if every delivery at positions in [start, until) is in the table."""
        if topic_id not in self.vectors:
            return not start.distance_to(until)
        return start.reaches(self.starts.get(topic_id, OffsetVector())) and self.vectors[topic_id].reaches(until)

    def after(self, topic_id: str, start: OffsetVector, until: OffsetVector, markers: Mapping[int, Marker], commit: str) -> Reach:
        """What the commit of an append of [start, until) will say."""
        known = {**self.markers.get(topic_id, {}), **markers}
        return Reach(
            starts={topic_id: start, **self.starts},
            vectors={**self.vectors, topic_id: until},
            markers={**self.markers, topic_id: known},
            append=self.append + 1,
            commit=commit,
        )

    def to_metadata(self) -> str:
        markers = {
            topic_id: {str(partition): [marker.offset, marker.value_hash] for partition, marker in of_topic.items()}
            for topic_id, of_topic in self.markers.items()
        }
        starts = {topic_id: vector.to_json() for topic_id, vector in self.starts.items()}
        vectors = {topic_id: vector.to_json() for topic_id, vector in self.vectors.items()}
        said = {"seam_ingest": _FORMAT, "starts": starts, "vectors": vectors, "markers": markers}
        return json.dumps(said | {"append": self.append, "commit": self.commit})

    @classmethod
    def from_metadata(cls, text: str) -> Reach | None:
        """None where a commit carries no vector, as those that compact do."""
        try:
            said = json.loads(text)
        except ValueError:
            return None
        if not isinstance(said, dict) or said.get("seam_ingest") != _FORMAT:
            return None
        markers = {
            topic_id: {int(partition): Marker(at, None, value_hash) for partition, (at, value_hash) in of_topic.items()}
            for topic_id, of_topic in said["markers"].items()
        }
        starts = {topic_id: OffsetVector.from_json(vector) for topic_id, vector in said["starts"].items()}
        vectors = {topic_id: OffsetVector.from_json(vector) for topic_id, vector in said["vectors"].items()}
        return cls(starts, vectors, markers, said["append"], said["commit"])


def read_reach(table: str, open_spark: Callable[[], SparkSession]) -> Reach:
    """How far the table reaches: by the newest commit that says so, else by its rows. Spark starts only for the latter."""
    for commit in commits_newest_first(table):
        if reach := Reach.from_metadata(commit.user_metadata):
            return reach
    return _reach_of_rows(open_spark(), table) if table_exists(table) else Reach()


def append_rows(deliveries: DataFrame, table: str, topic_id: str, reach: Reach) -> None:
    """Appends Kafka rows as one commit that carries the reach it leads to.

    Guarantees: all or nothing; an append of the same number as an earlier one is ignored, so one that is repeated cannot double.
    """
    from pyspark.sql import functions as F

    rows = deliveries.select(
        F.lit(topic_id).alias("topic_id"),
        *("partition", "offset", F.col("timestamp").alias("log_time"), "key", "value"),
        F.to_date("timestamp").alias("log_date"),
    )
    writer = rows.write.format("delta").mode("append").partitionBy("log_date").options(**_TABLE_PROPERTIES)
    writer = writer.option("txnAppId", APPEND_APP).option("txnVersion", reach.append)
    with spark_faults(f"Appending to {table}"):
        writer.option("userMetadata", reach.to_metadata()).save(table)


def read_deliveries(spark: SparkSession, table: str, topic_id: str, start: OffsetVector, until: OffsetVector) -> DataFrame:
    """The deliveries at positions in [start, until), with the columns of Spark's Kafka source that `lift` reads."""
    from pyspark.sql import functions as F

    rows = spark.read.format("delta").load(table)
    wanted = rows.where((F.col("topic_id") == topic_id) & _positions(start, until))
    return wanted.select("partition", "offset", F.col("log_time").alias("timestamp"), "value")


def _positions(start: OffsetVector, until: OffsetVector) -> Column:
    from pyspark.sql import functions as F

    partition, offset = F.col("partition"), F.col("offset")
    ranges = [(partition == number) & (offset >= start[number]) & (offset < end) for number, end in until if end > start[number]]
    return functools.reduce(operator.or_, ranges, F.lit(False))


def _reach_of_rows(spark: SparkSession, table: str) -> Reach:
    from pyspark.sql import functions as F

    rows = spark.read.format("delta").load(table)
    last = F.max_by(F.when(F.col("value").isNull(), F.lit(0)).otherwise(F.xxhash64("value")), "offset").alias("value_hash")
    vectors: dict[str, dict[int, int]] = {}
    markers: dict[str, dict[int, Marker]] = {}
    for row in rows.groupBy("topic_id", "partition").agg(F.max("offset").alias("last"), last).collect():
        vectors.setdefault(row.topic_id, {})[row.partition] = row["last"] + 1
        markers.setdefault(row.topic_id, {})[row.partition] = Marker(row["last"], None, row.value_hash)
    # Rows cannot say where the table starts, as offsets have holes: it is taken to start at the topic's first offset.
    starts = dict.fromkeys(vectors, OffsetVector())
    return Reach(starts, {topic_id: OffsetVector.of(vector) for topic_id, vector in vectors.items()}, markers, _last_append(spark, table))


def _last_append(spark: SparkSession, table: str) -> int:
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table)  # type: ignore[union-attr]
    last = log.unsafeVolatileSnapshot().transactions().get(APPEND_APP)
    return int(last.get()) if last.isDefined() else 0
