"""Both layers in miniature, by hand and without Spark, on the real store."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime

from serving.store import epochs, generations, manifests
from serving.store.database import Connection
from serving.store.records import (
    Epoch,
    Manifest,
    Marker,
    NewManifest,
    PartitionCounts,
    QuarantineRow,
    Run,
    SeenIds,
    SegmentId,
)
from serving.store.vectors import OffsetVector
from tests.store.tape import Event, Tape, as_table, day_of, partials
from views.view import Fingerprint, View

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Speed:
    """A speed layer: memory and token from the store, in that protocol's order."""

    def __init__(self, conn: Connection, line: str, tape: Tape, views: Sequence[View]) -> None:
        self.conn, self.line, self.tape, self.views = conn, line, tape, views
        self.token = epochs.take_over(conn, line)
        self.frontier = epochs.read_frontier(conn, line).until
        self.seen: set[tuple[int, int]] = set()
        for piece in epochs.load_seen(conn, line, since=LONG_AGO, most=10**9):
            self.seen |= set(struct.iter_unpack("<qq", piece.packed))

    def plan(self, until: OffsetVector) -> tuple[Epoch, list[Event]]:
        """The epoch from here to `until`, and the events it counts."""
        counted: list[Event] = []
        seen = set(self.seen)
        quarantine, tallies = [], {}
        for partition, at, event in self.tape.between(self.frontier, until):
            tally = tallies.setdefault(partition, [0, 0, 0, 0])
            tally[0] += 1
            if event is None:
                tally[3] += 1
                quarantine.append(QuarantineRow(partition, at, "not_json", "x\x00y", LONG_AGO))
            elif (event.id_hash, event.id_hash2) in seen:
                tally[2] += 1
            else:
                tally[1] += 1
                seen.add((event.id_hash, event.id_hash2))
                counted.append(event)
        return epoch_of(self.frontier, until, counted, self.views, tallies, quarantine), counted

    def commit(self, until: OffsetVector) -> int:
        epoch, counted = self.plan(until)
        number = epochs.commit_epoch(self.conn, self.line, self.token, epoch, self.views)
        self.frontier = until
        self.seen |= {(event.id_hash, event.id_hash2) for event in counted}
        return number


def epoch_of(
    start: OffsetVector,
    until: OffsetVector,
    counted: Sequence[Event],
    views: Sequence[View],
    tallies: dict[int, list[int]],
    quarantine: Sequence[QuarantineRow] = (),
) -> Epoch:
    checksum = 0
    for event in counted:
        checksum ^= event.id_hash
    packed = b"".join(struct.pack("<qq", event.id_hash, event.id_hash2) for event in counted)
    return Epoch(
        start=start,
        until=until,
        markers={partition: Marker(offset - 1, None, 7) for partition, offset in until if offset > start[partition]},
        partitions={partition: PartitionCounts(*tally) for partition, tally in tallies.items()},
        late=0,
        id_checksum=checksum,
        watermark=datetime.fromtimestamp(max((event.seconds for event in counted), default=0), UTC),
        cells={view.fingerprint: as_table(view, partials(view, counted)) for view in views},
        seen=SeenIds(packed, LONG_AGO) if counted else None,
        quarantine=quarantine,
    )


def load_all(
    conn: Connection, line: str, run: Run, views: Sequence[View], events: Iterable[Event]
) -> dict[tuple[Fingerprint, date], SegmentId]:
    """Every day of every view, recomputed by the oracle and loaded as segments of this run."""
    segments = {}
    for view in views:
        by_day: dict[date, dict[tuple[object, ...], list[int]]] = {}
        for cell, values in partials(view, events).items():
            by_day.setdefault(day_of(cell[-1]), {})[cell] = values
        for day, cells in by_day.items():
            loaded = manifests.load_segment(conn, line, run.run, view, day, [as_table(view, cells, wide=True)])
            segments[view.fingerprint, day] = loaded.segment
    return segments


def build(conn: Connection, line: str, tape: Tape, views: Sequence[View]) -> NewManifest:
    """A night up to, but not including, its publishing."""
    sealed = generations.seal(conn, line)
    run = manifests.begin_run(conn, line)
    assert sealed.cut is not None
    return NewManifest(
        run=run.run,
        base=run.base.manifest,
        base_pointer_version=run.pointer_version,
        generation=sealed.generation,
        cut=sealed.cut,
        watermark=sealed.watermark,
        fingerprints={view.name: view.fingerprint for view in views},
        segments=load_all(conn, line, run, views, tape.distinct_below(sealed.cut)),
        winner_runs=(run.run,),
        counts={"events": len(tape.distinct_below(sealed.cut))},
        checks={},
    )


def night(conn: Connection, line: str, tape: Tape, views: Sequence[View]) -> Manifest:
    new = build(conn, line, tape, views)
    published = manifests.publish(conn, line, new)
    manifests.end_run(conn, line, new.run)
    return published
