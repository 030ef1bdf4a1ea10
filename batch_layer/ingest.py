"""Ingest: catches the master dataset up with the log, in bounded Kafka reads that are one Delta commit each.

Makes the same checks of the log as the speed layer and knows nothing else of it. There is no checkpoint: the table's
newest commit says where the next one starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from batch_layer.delta_log import commits_newest_first
from batch_layer.master_dataset import Reach, append_rows, read_reach
from infra.crash import CrashPoint
from infra.kafka_log import KafkaLog, check_log, value_hash
from serving.errors import NightlyLocked
from serving.store.records import Frontier, LineInfo, Marker
from serving.store.vectors import OffsetVector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_OFFSETS_PER_COMMIT = 2_000_000
_LOOK_BACK = 8
"""How many offsets before the end are tried for a marker: the last ones may be markers of transactions."""

Progress = Callable[[int, int], None]
"""Called with the offsets done and the offsets planned."""


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """What one catch-up will read: decided, and the log checked, before anything is written."""

    table: str
    reach: Reach
    start: OffsetVector
    until: OffsetVector
    beginning: OffsetVector
    warnings: tuple[str, ...]

    @property
    def offsets(self) -> int:
        return self.start.distance_to(self.until)

    @property
    def retention_margin(self) -> int | None:
        """Least number of offsets, over the partitions, by which the log's beginning is behind this ingest; None for an empty log."""
        margins = [self.start[partition] - self.beginning[partition] for partition, _ in self.until]
        return min(margins, default=None)


@dataclass(frozen=True, slots=True)
class Ingested:
    start: OffsetVector
    until: OffsetVector
    deliveries: int
    commits: int
    retention_margin: int | None
    warnings: tuple[str, ...] = ()


def plan_ingest(table: str, log: KafkaLog, info: LineInfo, open_spark: Callable[[], SparkSession]) -> IngestPlan:
    """From where the master dataset reaches to the log's end now. Raises `LogDiverged` or `OffsetsExpired`; writes nothing."""
    reach = read_reach(table, open_spark)
    known = info.topic_id in reach.vectors
    held = reach.until(info.topic_id) if known else info.origin
    markers = reach.markers.get(info.topic_id, {})
    warnings = check_log(log, info, Frontier(held, markers, epoch=0, generation=0, watermark=None))
    beginning = log.beginning()
    # A table may serve several lines, so its first append starts at the log's beginning, which is at or before every origin.
    start = held if known else beginning
    return IngestPlan(table, reach, start, log.end().union(start), beginning, tuple(warnings))


def catch_up(
    plan: IngestPlan,
    log: KafkaLog,
    info: LineInfo,
    open_spark: Callable[[], SparkSession],
    *,
    most: int = MOST_OFFSETS_PER_COMMIT,
    progress: Progress = lambda done, planned: None,
    crash: CrashPoint,
) -> Ingested:
    """Appends what the plan names; the caller is the table's sole writer.

    Guarantees: each chunk is one commit that says how far it reaches, so a run that died is continued, not repeated; a
    writer that got in between is noticed (`NightlyLocked`) and nothing of this run is then in the table twice.
    """
    reach, deliveries, commits = plan.reach, 0, 0
    for start, until in chunks(plan.start, plan.until, most):
        following = reach.after(info.topic_id, start, until, _markers(log, start, until), commit=str(uuid4()))
        append_rows(read_log(open_spark(), log, start, until), plan.table, info.topic_id, following)
        crash.reach("mid_ingest")
        deliveries += _rows_of(plan.table, following)
        commits += 1
        reach = following
        progress(plan.start.distance_to(until), plan.offsets)
    return Ingested(plan.start, plan.until, deliveries, commits, plan.retention_margin, plan.warnings)


def chunks(start: OffsetVector, until: OffsetVector, most: int) -> Iterator[tuple[OffsetVector, OffsetVector]]:
    """Splits [start, until) into ranges of at most about `most` offsets, every partition advancing in proportion."""
    count = -(-start.distance_to(until) // most)
    at = start
    for number in range(1, count + 1):
        ahead = OffsetVector.of({p: start[p] + max(0, end - start[p]) * number // count for p, end in until}).union(start)
        yield at, ahead
        at = ahead


def read_log(spark: SparkSession, log: KafkaLog, start: OffsetVector, until: OffsetVector) -> DataFrame:
    """The committed deliveries at positions in [start, until), as Spark's Kafka source gives them."""
    partitions = [partition for partition, end in until if end > start[partition]]
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", log.bootstrap)
    reader = reader.option("kafka.isolation.level", "read_committed").option("failOnDataLoss", "true")
    reader = reader.option("assign", json.dumps({log.topic: partitions}))
    reader = reader.option("startingOffsets", json.dumps({log.topic: {str(p): start[p] for p in partitions}}))
    return reader.option("endingOffsets", json.dumps({log.topic: {str(p): until[p] for p in partitions}})).load()


def _rows_of(table: str, reach: Reach) -> int:
    """How many rows the append wrote, as its commit says; the proof that it was this append and not another's."""
    for commit in commits_newest_first(table):
        said = Reach.from_metadata(commit.user_metadata)
        if said is None:
            continue
        if said.commit == reach.commit:
            return commit.rows
        break
    raise NightlyLocked(
        f"Another writer appended to {table} while this one did.",
        untouched="The table has that writer's rows and none of this append.",
        fix="Run the same command again; keep to one writer.",
    )


def _markers(log: KafkaLog, start: OffsetVector, until: OffsetVector) -> dict[int, Marker]:
    """The last delivery of each partition below `until`, as proof at the next run that the log is still the same."""
    markers = {}
    for partition, end in until:
        for position in range(end - 1, max(start[partition], end - _LOOK_BACK) - 1, -1):
            if (found := log.find(partition, position)) is not None:
                markers[partition] = Marker(position, None, value_hash(found.value))
                break
    return markers
