"""A small tape of events, committed to the store by hand, and a deliberately naive fold of it to compare with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

import pyarrow as pa
import xxhash

from serving.store import database, epochs, generations, manifests, schema
from serving.store.records import Epoch, LineInfo, Manifest, Marker, NewManifest, PartitionCounts, SeenIds
from serving.store.vectors import OffsetVector
from views.registry import ALL_VIEWS
from views.view import View

LINE = "main"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
_FIELDS = {"transactions": None, "amount_cents": "amount_cents", "largest_cents": "amount_cents"}


@dataclass(frozen=True)
class Event:
    transaction_id: str
    event_time: datetime
    account_id: str
    merchant_id: str
    amount_cents: int
    currency: str

    @property
    def id_hash(self) -> int:
        return _signed(xxhash.xxh64_intdigest(self.transaction_id.encode(), seed=42))

    @property
    def packed(self) -> bytes:
        second = _signed(xxhash.xxh64_intdigest(self.transaction_id.encode(), seed=xxhash.xxh64_intdigest(b"seam", seed=42)))
        return self.id_hash.to_bytes(8, "little", signed=True) + second.to_bytes(8, "little", signed=True)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def random_events(seed: int, count: int, *, first: int = 0, minutes: int = 90) -> list[Event]:
    random = Random(seed)
    return [
        Event(
            f"t-{first + index}",
            NOON + timedelta(seconds=random.randrange(minutes * 60)),
            f"a-{random.randrange(9)}",
            f"m-{random.randrange(5)}",
            random.randrange(-500, 5000),
            random.choice(["EUR", "USD"]),
        )
        for index in range(count)
    ]


def shown_instant(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def naive_cells(view: View, events: Iterable[Event]) -> dict[tuple[object, ...], dict[str, int]]:
    """Every cell of a view, by key and window start: a loop and a dictionary."""
    members: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for event in events:
        start = event.event_time - timedelta(seconds=event.event_time.timestamp() % view.window.seconds)
        members[(*(getattr(event, field) for field in view.key), start)].append(event)
    cells = {}
    for cell, inside in members.items():
        amounts, checksum = [event.amount_cents for event in inside], 0
        for event in inside:
            checksum ^= event.id_hash
        every = {"transactions": len(inside), "amount_cents": sum(amounts), "largest_cents": max(amounts)}
        cells[cell] = {**{name: every[name] for name in view.measures}, "events": len(inside), "id_checksum": checksum}
    return cells


def naive_rows(view: View, events: Iterable[Event]) -> list[dict[str, object]]:
    """The rows that any way of asking must show, but for `final`."""
    rows = []
    for cell, values in sorted(naive_cells(view, events).items()):
        start: datetime = cell[-1]  # type: ignore[assignment]
        row = dict(zip(view.key, cell[:-1], strict=True)) | {
            "window_start": shown_instant(start),
            "window_end": shown_instant(start + view.window.length),
        }
        rows.append(row | {name: value for name, value in values.items() if name != "events"})
    return rows


def without_final(rows: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name != "final"} for row in rows]


def cell_table(view: View, events: Iterable[Event]) -> pa.Table:
    cells = naive_cells(view, events)
    columns: dict[str, pa.Array] = {}
    for position, field in enumerate(view.key):
        columns[field] = pa.array([cell[position] for cell in cells], pa.string())
    columns["window_start"] = pa.array([int(cell[-1].timestamp()) for cell in cells], pa.int64())  # type: ignore[attr-defined]
    for column in view.columns:
        columns[column.name] = pa.array([values[column.name] for values in cells.values()], pa.int64())
    return pa.table(columns)


class Tape:
    """One line whose events all come from partition 0, one position each. It commits and publishes like the layers do."""

    def __init__(self, url: str, views: Sequence[View] = ALL_VIEWS) -> None:
        self.url, self.views = url, views
        self.conn = database.connect(url)
        schema.create_line(self.conn, LineInfo(LINE, "transactions", "topic-1", OffsetVector()), views)
        self.token = epochs.take_over(self.conn, LINE)
        self.events: list[Event] = []

    def commit(self, events: Sequence[Event], views: Sequence[View] | None = None) -> None:
        start = len(self.events)
        until = start + len(events)
        checksum = 0
        for event in events:
            checksum ^= event.id_hash
        epochs.commit_epoch(
            self.conn,
            LINE,
            self.token,
            Epoch(
                start=OffsetVector.of({0: start}),
                until=OffsetVector.of({0: until}),
                markers={0: Marker(until - 1, events[-1].id_hash, 1)},
                partitions={0: PartitionCounts(len(events), len(events), 0, 0)},
                late=0,
                id_checksum=checksum,
                watermark=max(event.event_time for event in [*self.events, *events]) - timedelta(seconds=60),
                cells={view.fingerprint: cell_table(view, events) for view in views or self.views},
                seen=SeenIds(b"".join(event.packed for event in events), NOON),
                quarantine=(),
            ),
            views or self.views,
        )
        self.events += events

    def publish(self) -> Manifest:
        """What the nightly does, by hand: seal, recount everything below the cut, load, publish."""
        sealed = generations.seal(self.conn, LINE)
        assert sealed.cut is not None
        run = manifests.begin_run(self.conn, LINE)
        counted = self.events[: sealed.cut[0]]
        segments = {}
        for view in self.views:
            for day in sorted({event.event_time.date() for event in counted}):
                of_day = [event for event in counted if event.event_time.date() == day]
                loaded = manifests.load_segment(self.conn, LINE, run.run, view, day, [cell_table(view, of_day)])
                segments[view.fingerprint, day] = loaded.segment
        new = NewManifest(
            run=run.run,
            base=run.base.manifest,
            base_pointer_version=run.pointer_version,
            generation=sealed.generation,
            cut=sealed.cut,
            watermark=sealed.watermark,
            fingerprints={view.name: view.fingerprint for view in self.views},
            segments=segments,
            winner_runs=(*run.base.winner_runs, run.run),
            counts={"events": len(counted)},
            checks={},
        )
        return manifests.publish(self.conn, LINE, new)

    def close(self) -> None:
        self.conn.close()
