"""The source: micro-batches of deliveries from explicit positions, and where each one was planned to end.

Spark's checkpoint is not trusted here. One is made for each run, read only for the planned end offsets of the current
micro-batch, and thrown away; what was counted is known by the store alone.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from infra.disk import disk_errors
from serving.errors import StreamFailed
from serving.store.vectors import OffsetVector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PREFIX = "speed-checkpoint-"

# On a local disk the default manager runs an external command for each file; ours need not be exclusive or checked.
_SESSION = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}

CONSUMER = {
    "kafka.isolation.level": "read_committed",
    # A value of several MB passes whole, and small ones come many at a time.
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.max.poll.records": "10000",
}


# A backlog makes every trigger late and every stop finds no job to cancel: neither is worth a line for each.
_QUIET = ("org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor", "org.apache.spark.scheduler.DAGScheduler")


def prepare_session(spark: SparkSession) -> None:
    for key, setting in _SESSION.items():
        spark.conf.set(key, setting)
    logging = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    for name in _QUIET:
        logging.core.config.Configurator.setLevel(name, logging.Level.ERROR)


def read_deliveries(spark: SparkSession, bootstrap: str, topic: str, start: Mapping[int, int], most: int) -> DataFrame:
    """A stream of deliveries from `start`, which must name every partition; at most `most` in a micro-batch.

    A partition that appears later starts at 0; deliveries that are gone stop the stream, they are never passed over.
    """
    positions = json.dumps({topic: {str(partition): position for partition, position in start.items()}})
    reader = spark.readStream.format("kafka").options(**CONSUMER)
    return (
        reader.option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", positions)
        .option("maxOffsetsPerTrigger", most)
        .option("failOnDataLoss", "true")
        .load()
    )


def steps(start: OffsetVector, until: OffsetVector, most: int) -> Iterator[tuple[OffsetVector, OffsetVector]]:
    """[start, until) in pieces of at most about `most` offsets, shared by what each partition has left, as the stream does it."""
    while left := {p: end - start[p] for p, end in until if end > start[p]}:
        total = sum(left.values())
        ends = {p: start[p] + (count if total <= most else max(1, count * most // total)) for p, count in left.items()}
        yield start, (end := start.union(OffsetVector.of(ends)))
        start = end


def planned_end(checkpoint: Path, micro_batch: int, topic: str) -> OffsetVector:
    """Where a micro-batch was planned to end: beyond its last delivery where a transaction marker trails it."""
    try:
        *_, positions = (checkpoint / "offsets" / str(micro_batch)).read_text().strip().splitlines()
        return OffsetVector.from_json(json.loads(positions)[topic])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise StreamFailed(
            f"The planned end of micro-batch {micro_batch} cannot be read: {problem}.", fix="The speed layer starts again from the store."
        ) from problem


@contextmanager
def throw_away_checkpoint(run_folder: Path) -> Iterator[Path]:
    """A fresh folder that is removed at the end; also removes those of processes that were killed."""
    with disk_errors(run_folder):
        run_folder.mkdir(parents=True, exist_ok=True)
        for left in run_folder.glob(f"{_PREFIX}*"):
            if not _alive(int(left.name.removeprefix(_PREFIX).partition("-")[0])):
                shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=run_folder.resolve()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
