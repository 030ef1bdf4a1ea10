"""One micro-batch becomes one epoch: a pure function of what was lifted and what was counted before.

Knows numpy and Arrow, and neither Spark, Kafka nor the store. All rows are handled as columns, never one by one; only
quarantined deliveries, which are few, become Python objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serving.errors import LogDiverged, StreamFailed
from serving.store.records import Epoch, Frontier, Marker, PartitionCounts, QuarantineRow, SeenIds
from serving.store.vectors import OffsetVector
from speed_layer.seen import Hashes, Mask, Seen, pack
from views.fold import fold
from views.view import View

Integers = npt.NDArray[np.int64]

_NOT_FOLDED = {"partition", "offset", "log_time", "value_hash", "reason", "masked"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Reading:
    """How far the log was read: the frontier, and what the next watermark needs."""

    until: OffsetVector
    markers: Mapping[int, Marker]
    watermark: datetime | None
    highest: Mapping[int, datetime]
    """By partition, the greatest min(`event_time`, `log_time`) known: exact in this life, a lower bound after a start."""

    @classmethod
    def at(cls, frontier: Frontier, slack: timedelta) -> Reading:
        mark = frontier.watermark
        highest = {} if mark is None else dict.fromkeys(frontier.markers, mark + slack)
        return cls(frontier.until, frontier.markers, mark, highest)


@dataclass(frozen=True, slots=True)
class NewIds:
    """The ids an epoch counted, sorted by their first hash: to be remembered before the next epoch is folded."""

    first: Hashes
    second: Hashes
    newest_log_time: datetime


@dataclass(frozen=True, slots=True)
class Folded:
    epoch: Epoch
    reading: Reading
    ids: NewIds | None
    log_position: datetime | None
    """How far the log was read, by `log_time`: the least over the partitions that gave something."""


@dataclass(frozen=True, slots=True)
class _Events:
    """The columns of the valid rows that decide what counts."""

    first: Hashes
    second: Hashes
    partition: Integers
    position: Integers
    log_time: Integers
    event_time: Integers

    @classmethod
    def of(cls, rows: pa.Table) -> _Events:
        return cls(
            first=_integers(rows, "id_hash").view(np.uint64),
            second=_integers(rows, "id_hash2").view(np.uint64),
            partition=_integers(rows, "partition"),
            position=_integers(rows, "offset"),
            log_time=_integers(rows, "log_time"),
            event_time=_integers(rows, "event_time"),
        )


def fold_epoch(
    lifted: pa.Table, planned_end: OffsetVector, reading: Reading, seen: Seen, views: Sequence[View], slack: timedelta
) -> Folded | None:
    """The epoch from `reading` to `planned_end`; None where that is no step forward.

    Rows below the frontier are skipped by position. Of several deliveries of one id the least by (`log_time`, partition,
    offset) counts, unless the id was seen before. `seen` is read only.
    """
    until = reading.until.union(planned_end)
    rows = _new_rows(lifted, reading, until)
    if until == reading.until:
        return None
    valid = _is_null(rows, "reason")
    all_events = rows if valid.all() else rows.filter(pa.array(valid))
    events = _Events.of(all_events)
    counted, order = _winners(events, seen)
    highest = _highest(reading.highest, events)
    watermark = _watermark(reading.watermark, highest, slack)
    markers = {**reading.markers, **_markers(rows)}
    ids = _new_ids(events, order)
    folded_columns = [name for name in rows.column_names if name not in _NOT_FOLDED]
    winners = all_events.select(folded_columns).filter(pa.array(counted))
    epoch = Epoch(
        start=reading.until,
        until=until,
        markers=markers,
        partitions=_counts(_integers(rows, "partition"), valid, events.partition[counted]),
        late=_late(events.event_time[counted], reading.watermark),
        id_checksum=int(np.bitwise_xor.reduce(events.first[order].view(np.int64))) if len(order) else 0,
        watermark=watermark,
        cells={view.fingerprint: fold(view, winners) for view in views},
        seen=None if ids is None else SeenIds(pack(ids.first, ids.second), ids.newest_log_time),
        quarantine=[] if valid.all() else _quarantine(rows.filter(pa.array(~valid))),
    )
    return Folded(epoch, Reading(until, markers, watermark, highest), ids, _log_position(rows))


def _new_rows(lifted: pa.Table, reading: Reading, until: OffsetVector) -> pa.Table:
    """The rows at or above the frontier. Those below it are checked against the markers on the way."""
    partition, position = _integers(lifted, "partition"), _integers(lifted, "offset")
    if not len(partition):
        return lifted
    partitions = range(int(partition.max()) + 1)
    if (position >= np.array([until[p] for p in partitions])[partition]).any():
        raise StreamFailed("The micro-batch holds deliveries beyond its planned end.", fix="The speed layer starts again from the store.")
    below: Mask = position < np.array([reading.until[p] for p in partitions])[partition]
    if not below.any():
        return lifted
    _check_markers(lifted.filter(pa.array(below)), reading.markers)
    return lifted.filter(pa.array(~below))


def _check_markers(skipped: pa.Table, markers: Mapping[int, Marker]) -> None:
    partition, position, value_hash = (_integers(skipped, name) for name in ("partition", "offset", "value_hash"))
    for p, marker in markers.items():
        found = value_hash[(partition == p) & (position == marker.offset)]
        if len(found) and int(found[0]) != marker.value_hash:
            raise LogDiverged(
                f"Partition {p}: the delivery at offset {marker.offset} has other bytes than the one that was counted there.",
                untouched="Nothing was written.",
                fix="The topic was truncated or re-created. If that was intended: seam rebuild, then seam speed --from-master.",
                partition=p,
                at=marker.offset,
            )


def _winners(events: _Events, seen: Seen) -> tuple[Mask, npt.NDArray[np.intp]]:
    """Which rows count, as a mask and as row numbers in the order of the first hash."""
    counted = np.ones(len(events.first), dtype=np.bool_)
    order = np.argsort(events.first)
    hashes = events.first[order]
    same_as_next = hashes[1:] == hashes[:-1]
    if same_as_next.any():
        repeated = order[np.concatenate((same_as_next, [False])) | np.concatenate(([False], same_as_next))]
        counted[_losers(events, repeated)] = False
        order = order[counted[order]]
    known = seen.find(events.first[order], events.second[order])
    counted[order[known]] = False
    return counted, order[~known]


def _losers(events: _Events, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Of these rows all but the least delivery of each id."""
    keys = (events.position, events.partition, events.log_time, events.second, events.first)  # the last is the primary one
    rows = rows[np.lexsort([key[rows] for key in keys])]
    first, second = events.first[rows], events.second[rows]
    same_as_before: Mask = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
    losers: npt.NDArray[np.intp] = rows[1:][same_as_before]
    return losers


def _new_ids(events: _Events, order: npt.NDArray[np.intp]) -> NewIds | None:
    if not len(order):
        return None
    return NewIds(events.first[order], events.second[order], _instant(int(events.log_time[order].max())))


def _highest(before: Mapping[int, datetime], events: _Events) -> dict[int, datetime]:
    after = dict(before)
    for partition, micros in _greatest(events.partition, np.minimum(events.event_time, events.log_time)).items():
        reached = _instant(micros)
        after[partition] = max(reached, after.get(partition, reached))
    return after


def _log_position(rows: pa.Table) -> datetime | None:
    """A partition that gave nothing was read to its end: what it gives next is newer than all of this."""
    reached = _greatest(_integers(rows, "partition"), _integers(rows, "log_time"))
    return _instant(min(reached.values())) if reached else None


def _greatest(partition: Integers, values: Integers) -> dict[int, int]:
    if not len(partition):
        return {}
    greatest = np.full(int(partition.max()) + 1, _NEVER)
    np.maximum.at(greatest, partition, values)
    return {p: int(greatest[p]) for p in np.flatnonzero(greatest != _NEVER).tolist()}


def _watermark(before: datetime | None, highest: Mapping[int, datetime], slack: timedelta) -> datetime | None:
    """The least over partitions, minus the slack; a partition that is read for the first time does not move it back."""
    if not highest:
        return before
    reached = min(highest.values()) - slack
    return reached if before is None else max(before, reached)


def _late(event_time: Integers, watermark: datetime | None) -> int:
    return 0 if watermark is None else int(np.count_nonzero(event_time < _micros(watermark)))


def _markers(rows: pa.Table) -> dict[int, Marker]:
    """The last delivery of each partition that was read."""
    partition, position = _integers(rows, "partition"), _integers(rows, "offset")
    at = [np.flatnonzero((position == last) & (partition == p))[0] for p, last in _greatest(partition, position).items()]
    ends = rows.select(["partition", "offset", "reason", "id_hash", "value_hash"]).take(pa.array(at, pa.int64())).to_pylist()
    return {end["partition"]: Marker(end["offset"], None if end["reason"] else end["id_hash"], end["value_hash"]) for end in ends}


def _counts(partition: Integers, valid: Mask, counted: Integers) -> dict[int, PartitionCounts]:
    """By partition that was read, how its deliveries divide."""
    if not len(partition):
        return {}
    size = int(partition.max()) + 1
    read, quarantined, winners = (np.bincount(rows, minlength=size).tolist() for rows in (partition, partition[~valid], counted))
    return {p: PartitionCounts(read[p], winners[p], read[p] - winners[p] - quarantined[p], quarantined[p]) for p in range(size) if read[p]}


def _quarantine(rows: pa.Table) -> list[QuarantineRow]:
    columns = rows.select(["partition", "offset", "reason", "masked"]).to_pylist()
    times = _integers(rows, "log_time").tolist()
    return [QuarantineRow(log_time=_instant(time), **column) for column, time in zip(columns, times, strict=True)]


def _integers(rows: pa.Table, name: str) -> Integers:
    column = rows.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    integers: Integers = column.to_numpy().astype(np.int64, copy=False)
    return integers


def _is_null(rows: pa.Table, name: str) -> Mask:
    nulls: Any = rows.column(name).is_null().to_numpy()
    return np.asarray(nulls, dtype=np.bool_)


def _instant(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _micros(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(microseconds=1)
