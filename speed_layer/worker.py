"""Folds and commits micro-batches in order, on one thread with a connection of its own.

The commit of one epoch overlaps the lifting of the next, at most one behind. This thread alone owns the memory (how far
was read, which ids were seen) and is the only writer; whatever fails here, the memory is dropped and the store is truth.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from infra.crash import CrashPoint
from serving.store import epochs
from serving.store.database import Connection
from serving.store.records import Epoch, PartitionCounts, Token
from serving.store.vectors import OffsetVector
from speed_layer.fold_epoch import Reading, fold_epoch
from speed_layer.seen import Seen
from views.view import View

log = logging.getLogger("seam.speed")

_RELEASE_EVERY = 16
"""Epochs between two returns of unused Arrow memory to the system."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What one epoch added, for whoever watches."""

    epoch: int
    counts: PartitionCounts
    late: int
    until: OffsetVector
    watermark: datetime | None


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: a line, the proof of being the one who may, and the views to fold."""

    conn: Connection
    line: str
    token: Token
    views: Sequence[View]


class EpochWorker:
    """One thread, one epoch at a time. `submit` and `settle` raise what went wrong there."""

    def __init__(
        self,
        writer: Writer,
        reading: Reading,
        seen: Seen,
        *,
        slack: timedelta,
        source_interval: timedelta,
        same_log: Callable[[], None],
        crash: CrashPoint,
        watch: Callable[[Committed], None],
        now: Callable[[], datetime],
    ) -> None:
        """`same_log` raises if the topic is no longer the one that was counted; asked after reading and before each commit."""
        self.reading = reading
        self._writer = writer
        self._seen = seen
        self._slack = slack
        self._source_interval = source_interval
        self._same_log = same_log
        self._crash = crash
        self._watch = watch
        self._now = now
        self._source_stored_at = datetime.min.replace(tzinfo=UTC)
        self._source_position: OffsetVector | None = None
        self._epochs = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="seam-commit")
        self._current: Future[None] | None = None
        self._lock = threading.RLock()
        """Guards `_current`: micro-batches come on Spark's thread, checks on the main one."""

    def submit(self, lifted: pa.Table, planned_end: OffsetVector) -> None:
        """Hand over one micro-batch; returns once the one before it is committed."""
        with self._lock:
            self.settle()
            self._current = self._thread.submit(self._fold_and_commit, lifted, planned_end)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        with self._lock:
            if self._current is not None:
                self._current.result()
                self._current = None

    def check(self) -> None:
        """Raise what went wrong, without waiting; store the source position if it is due while nothing comes in."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._current is not None and self._current.done():
                self.settle()
            if self._current is None and self._source_due() and self._source_position != self.reading.until:
                self._current = self._thread.submit(self._store_source_position)
        finally:
            self._lock.release()

    def finish(self) -> None:
        """Settle and store the source position at the frontier, so that the next start replays nothing."""
        self.settle()
        self._thread.submit(self._store_source_position).result()

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _fold_and_commit(self, lifted: pa.Table, planned_end: OffsetVector) -> None:
        folded = fold_epoch(lifted, planned_end, self.reading, self._seen, self._writer.views, self._slack)
        if folded is None:
            return
        del lifted
        if folded.ids is not None:
            self._seen.add(folded.ids.first, folded.ids.second, log_time=folded.ids.newest_log_time, now=self._now())
        self._same_log()
        number = self._commit(folded.epoch)
        self.reading = folded.reading
        self._report(number, folded.epoch)
        self._seen.expire(now=self._now(), log_position=folded.log_position)
        if self._source_due():
            self._store_source_position()
        self._epochs += 1
        if self._epochs % _RELEASE_EVERY == 0:
            pa.default_memory_pool().release_unused()

    def _commit(self, epoch: Epoch) -> int:
        self._crash.reach("before_commit")
        with _crash_before_the_end(self._writer.conn, self._crash):
            number = epochs.commit_epoch(self._writer.conn, self._writer.line, self._writer.token, epoch, self._writer.views)
        self._crash.reach("after_commit")
        return number

    def _source_due(self) -> bool:
        return self._now() - self._source_stored_at >= self._source_interval

    def _store_source_position(self) -> None:
        position = self.reading.until
        self._crash.reach("before_source_position")
        epochs.store_source_position(self._writer.conn, self._writer.line, self._writer.token, position)
        self._crash.reach("after_source_position")
        self._source_stored_at, self._source_position = self._now(), position

    def _report(self, number: int, epoch: Epoch) -> None:
        parts = epoch.partitions.values()
        totals = PartitionCounts(
            read=sum(part.read for part in parts),
            counted=sum(part.counted for part in parts),
            duplicates=sum(part.duplicates for part in parts),
            quarantined=sum(part.quarantined for part in parts),
        )
        log.info(
            "epoch committed epoch=%d read=%d counted=%d duplicates=%d quarantined=%d late=%d until=%s seen_ids=%d",
            *(number, totals.read, totals.counted, totals.duplicates, totals.quarantined, epoch.late, epoch.until, len(self._seen)),
        )
        self._watch(Committed(number, totals, epoch.late, epoch.until, epoch.watermark))


@contextmanager
def _crash_before_the_end(conn: Connection, crash: CrashPoint) -> Iterator[None]:
    """For tests of a death with everything sent and nothing committed; does nothing unless that crash was asked for."""
    if not crash.waits_for("mid_commit"):
        yield
        return
    with conn.transaction():
        yield
        crash.reach("mid_commit")
