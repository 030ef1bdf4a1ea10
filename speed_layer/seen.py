"""The ids that were counted, in memory: 16 bytes each, in time buckets of sorted arrays behind one bitmap.

Nearly every id is new, and the bitmap says so without a search; only probable hits are looked up, newest bucket first.
Knows hashes and instants, and neither Kafka nor the store: losing all of it costs one load at the next start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from serving.store.records import SeenIds

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_LEAST_BITS = 1 << 22
_BITS_PER_ID = 16
"""The least room; with 16 to 32 bits an id, at most about 1 % of new ids are searched in vain."""
_MOST_IDS_PER_BUCKET = 8_000_000
_BUCKETS_PER_HORIZON = 8


@dataclass(frozen=True, slots=True)
class Horizon:
    """How long and how many ids are remembered. An id expires when it is old by `log_time` and by commit time."""

    length: timedelta
    most: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Ids sorted by their first hash."""

    first: Hashes
    second: Hashes

    def holds(self, first: Hashes, second: Hashes) -> Mask:
        found = np.zeros(len(first), dtype=np.bool_)
        at = np.searchsorted(self.first, first)
        asked = np.arange(len(first))
        while len(asked):
            inside = at < len(self.first)
            asked, at = asked[inside], at[inside]
            same = self.first[at] == first[asked]
            asked, at = asked[same], at[same]
            found[asked] |= self.second[at] == second[asked]
            unlike = ~found[asked]  # two ids with one first hash: the next entry may be the one
            asked, at = asked[unlike], at[unlike] + 1
        return found


@dataclass(slots=True)
class _Bucket:
    opened_at: datetime
    newest_log_time: datetime
    newest_commit_time: datetime
    runs: list[_Run] = field(default_factory=list)
    count: int = 0

    def add(self, run: _Run, log_time: datetime, now: datetime) -> None:
        self.newest_log_time = max(self.newest_log_time, log_time)
        self.newest_commit_time = max(self.newest_commit_time, now)
        self.runs.append(run)
        self.count += len(run.first)
        while len(self.runs) > 1 and len(self.runs[-2].first) < 2 * len(self.runs[-1].first):
            self.runs[-2:] = [_merged(self.runs[-2:])]

    def close(self) -> None:
        if len(self.runs) > 1:
            self.runs = [_merged(self.runs)]


def _merged(runs: list[_Run]) -> _Run:
    return _sorted_run(np.concatenate([run.first for run in runs]), np.concatenate([run.second for run in runs]))


def _sorted_run(first: Hashes, second: Hashes) -> _Run:
    order = np.argsort(first, kind="stable")  # stable: linear where the parts are sorted already
    return _Run(first[order], second[order])


class _Bitmap:
    """Three bits an id, all in one 64-bit word. An id without all three was never set; one with them is worth a search.

    The first hash picks the word by its high bits, so sorted ids walk the bitmap in order; the second hash picks the bits.
    """

    def __init__(self, ids: int) -> None:
        self.bits = max(_LEAST_BITS, 1 << (2 * _BITS_PER_ID * ids - 1).bit_length()) if ids else _LEAST_BITS
        words = self.bits // 64
        self._shift = np.uint64(64 - (words.bit_length() - 1))
        self._words = np.zeros(words, dtype=np.uint64)

    def set(self, run: _Run) -> None:
        word = run.first >> self._shift
        starts = np.concatenate(([0], np.flatnonzero(word[1:] != word[:-1]) + 1))
        self._words[word[starts].astype(np.intp)] |= np.bitwise_or.reduceat(_three_bits(run.second), starts)

    def maybe(self, first: Hashes, second: Hashes) -> Mask:
        bits = _three_bits(second)
        held: Mask = self._words[(first >> self._shift).astype(np.intp)] & bits == bits
        return held


def _three_bits(hashes: Hashes) -> Hashes:
    one, low = np.uint64(1), np.uint64(63)
    bits: Hashes = one << (hashes & low) | one << (hashes >> np.uint64(6) & low) | one << (hashes >> np.uint64(12) & low)
    return bits


class Seen:
    """A set of ids that forgets by horizon. Not safe for two threads: it belongs to the one that folds."""

    def __init__(self, horizon: Horizon) -> None:
        self._horizon = horizon
        self._buckets: list[_Bucket] = []
        self._bitmap = _Bitmap(0)
        self._count = 0
        self._forgotten = 0

    def __len__(self) -> int:
        return self._count

    def find(self, first: Hashes, second: Hashes) -> Mask:
        """Which of these ids were added before. Fastest where `first` is sorted."""
        found = np.zeros(len(first), dtype=np.bool_)
        asked = np.flatnonzero(self._bitmap.maybe(first, second))
        for bucket in reversed(self._buckets):
            for run in reversed(bucket.runs):
                if not len(asked):
                    return found
                hit = run.holds(first[asked], second[asked])
                found[asked[hit]] = True
                asked = asked[~hit]
        return found

    def add(self, first: Hashes, second: Hashes, *, log_time: datetime, now: datetime) -> None:
        """Adds ids that `find` did not know, sorted by `first`; `log_time` is the newest among them."""
        if not len(first):
            return
        run = _Run(first, second)
        self._open_bucket(log_time, now).add(run, log_time, now)
        self._count += len(first)
        if _BITS_PER_ID * self._count > self._bitmap.bits:
            self._rebuild_bitmap()
        else:
            self._bitmap.set(run)

    def load(self, parts: Iterable[SeenIds], *, now: datetime) -> None:
        """Adds what epochs packed, in any order; they count as committed now, so they are kept rather too long."""
        gathered: dict[int, list[SeenIds]] = {}
        held: dict[int, int] = {}
        for part in parts:
            span = int(part.newest_log_time.timestamp() // self._bucket_span.total_seconds())
            gathered.setdefault(span, []).append(part)
            held[span] = held.get(span, 0) + len(part.packed) // 16
            if held[span] >= _MOST_IDS_PER_BUCKET:
                self._add_bucket(gathered.pop(span), now)
                held[span] = 0
        for group in gathered.values():
            self._add_bucket(group, now)
        self._buckets.sort(key=lambda bucket: bucket.newest_log_time)
        self._rebuild_bitmap()

    def expire(self, *, now: datetime, log_position: datetime | None) -> int:
        """Forgets whole buckets, oldest first, and says how many ids went. `log_position` is how far the log was read."""
        old_log = None if log_position is None else min(log_position, now) - self._horizon.length
        old_commit = now - self._horizon.length
        gone = 0
        while len(self._buckets) > 1:
            bucket = self._buckets[0]
            too_old = old_log is not None and bucket.newest_log_time < old_log and bucket.newest_commit_time < old_commit
            if not too_old and self._count - bucket.count < self._horizon.most:
                break
            del self._buckets[0]
            self._count -= bucket.count
            gone += bucket.count
        self._forgotten += gone
        if self._forgotten > max(self._count // 2, _LEAST_BITS // _BITS_PER_ID):  # stale bits only cost searches
            self._rebuild_bitmap()
        return gone

    @property
    def _bucket_span(self) -> timedelta:
        return max(self._horizon.length / _BUCKETS_PER_HORIZON, timedelta(seconds=1))

    def _open_bucket(self, log_time: datetime, now: datetime) -> _Bucket:
        if self._buckets:
            bucket = self._buckets[-1]
            if bucket.count < _MOST_IDS_PER_BUCKET and now - bucket.opened_at < self._bucket_span:
                return bucket
            bucket.close()
        self._buckets.append(_Bucket(now, log_time, now))
        return self._buckets[-1]

    def _add_bucket(self, parts: list[SeenIds], now: datetime) -> None:
        packed = np.concatenate([np.frombuffer(part.packed, dtype="<u8").reshape(-1, 2) for part in parts])
        run = _sorted_run(packed[:, 0].copy(), packed[:, 1].copy())
        newest = max(part.newest_log_time for part in parts)
        self._buckets.append(_Bucket(datetime.min.replace(tzinfo=UTC), newest, now, [run], len(run.first)))
        self._count += len(run.first)

    def _rebuild_bitmap(self) -> None:
        self._bitmap = _Bitmap(self._count)
        for bucket in self._buckets:
            for run in bucket.runs:
                self._bitmap.set(run)
        self._forgotten = 0


def pack(first: Hashes, second: Hashes) -> bytes:
    """The durable form of ids: two little-endian 64-bit hashes each."""
    packed: bytes = np.column_stack((first, second)).astype("<u8", copy=False).tobytes()
    return packed
