"""The running stream: Spark's micro-batches go to the worker as Arrow tables, one after the other.

Owns the streaming query and its throw-away checkpoint. Stops between two micro-batches, never inside one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from infra.crash import CrashPoint
from infra.settings import Settings
from serving.errors import SeamError, StreamFailed
from speed_layer.source import planned_end, prepare_session, read_deliveries, throw_away_checkpoint
from speed_layer.worker import EpochWorker
from views.lift import lift
from views.view import View

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("seam.speed")

_LONGEST_MICRO_BATCH_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Source:
    """What to read, and from where."""

    bootstrap: str
    topic: str
    start: Mapping[int, int]
    """By partition, all of them, the first offset to read."""


class Stream:
    """Runs while its `with` block does."""

    def __init__(
        self, spark: SparkSession, source: Source, views: Sequence[View], worker: EpochWorker, settings: Settings, crash: CrashPoint
    ) -> None:
        self._spark = spark
        self._source = source
        self._views = views
        self._worker = worker
        self._settings = settings
        self._crash = crash
        self._turn = threading.Lock()
        self._ending = False
        self._failure: Exception | None = None
        self._open = ExitStack()
        self._query: StreamingQuery

    def __enter__(self) -> Self:
        try:
            self._query = self._started()
        except SeamError:
            self._open.close()
            raise
        except Exception as problem:
            self._open.close()
            raise _failed("The stream did not start", problem) from problem
        return self

    def _started(self) -> StreamingQuery:
        source, settings = self._source, self._settings
        prepare_session(self._spark)
        self._checkpoint: Path = self._open.enter_context(throw_away_checkpoint(settings.run_folder))
        deliveries = read_deliveries(self._spark, source.bootstrap, source.topic, source.start, settings.max_events_per_epoch)
        # Lifted inside the query: its plan is built once, and only slim rows leave it.
        writer = lift(deliveries, self._views).writeStream.foreachBatch(self._on_micro_batch)
        writer = writer.option("checkpointLocation", self._checkpoint.as_uri())
        return writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Lets the micro-batch under way end; those that come after it do nothing. Only then is the query stopped."""
        self._ending = True
        if self._turn.acquire(timeout=_LONGEST_MICRO_BATCH_SECONDS):
            self._turn.release()  # a micro-batch that waits for its turn must get it: the query does not stop before it returns
        try:
            self._query.stop()
        except Exception as problem:  # the Java process may be gone; what counts is in the store
            log.warning("the query could not be stopped problem=%s", _first_line(problem))
        finally:
            self._open.close()

    def check(self) -> None:
        """Raise why the stream ended, if it did."""
        if self._failure is not None:
            raise self._failure
        if not self._is_active():
            raise self._failure or _failed("The stream ended", self._exception())

    def _on_micro_batch(self, lifted: DataFrame, micro_batch: int) -> None:
        with self._turn:
            if self._ending:
                return
            try:
                self._crash.reach("before_lift")
                rows = _to_arrow(lifted)
                self._crash.reach("after_lift")
                self._worker.submit(rows, planned_end(self._checkpoint, micro_batch, self._source.topic))
            except Exception as failure:
                self._failure = failure
                raise

    def _is_active(self) -> bool:
        try:
            return bool(self._query.isActive)
        except Exception as problem:  # no Java process to ask
            self._failure = self._failure or _failed("The stream cannot be asked", problem)
            return False

    def _exception(self) -> object:
        try:
            return self._query.exception() or "it was stopped from outside"
        except Exception as problem:
            return problem


def _to_arrow(lifted: DataFrame) -> pa.Table:
    try:
        return lifted.toArrow()
    except Exception as problem:  # an executor, the Java process or the way to it: whatever it is, the next life may have luck
        raise _failed("A micro-batch could not be lifted", problem) from problem


def _failed(what: str, problem: object) -> StreamFailed:
    return StreamFailed(f"{what}: {_first_line(problem)}.", untouched="What was committed stands.", fix="Start again: seam speed")


def _first_line(problem: object) -> str:
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0][:400].rstrip(".")
