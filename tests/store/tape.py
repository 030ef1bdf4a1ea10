"""A small log of deliveries and its naive oracle: plain dictionaries, nothing of the code under test."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import xxhash

from serving.store.vectors import OffsetVector
from views.measures import Merge
from views.view import View

FIRST_DAY = 1_772_323_200  # 2026-03-01T00:00:00Z
DAY = 86_400


@dataclass(frozen=True)
class Event:
    transaction_id: str
    seconds: int
    account_id: str
    merchant_id: str
    currency: str
    amount_cents: int

    @property
    def id_hash(self) -> int:
        return _signed(xxhash.xxh64_intdigest(self.transaction_id.encode(), 42))

    @property
    def id_hash2(self) -> int:
        return _signed(xxhash.xxh64_intdigest(self.transaction_id.encode(), xxhash.xxh64_intdigest(b"seam", 42)))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


class Tape:
    """The log: for each partition its deliveries; None is one that cannot be an event."""

    def __init__(self, rng: random.Random, partitions: int = 3) -> None:
        self.rng = rng
        self.partitions: list[list[Event | None]] = [[] for _ in range(partitions)]
        self.events: list[Event] = []

    def produce(self, many: int, *, again: float = 0.3, broken: float = 0.05) -> None:
        """Appends new events, re-deliveries of any old one to any partition, and broken deliveries."""
        for _ in range(many):
            luck = self.rng.random()
            if luck < broken:
                delivery = None
            elif luck < broken + again and self.events:
                delivery = self.rng.choice(self.events)
            else:
                delivery = self._event()
                self.events.append(delivery)
            self.rng.choice(self.partitions).append(delivery)

    def _event(self) -> Event:
        rng = self.rng
        return Event(
            f"t-{len(self.events)}",
            FIRST_DAY + rng.choice((0, 0, DAY, 2 * DAY)) + rng.randrange(0, 300),
            rng.choice(("a-1", "a-2", "Ä", "z")),
            rng.choice(("m-1", "m-2", "m-10", "é,\"'\n\\")),
            rng.choice(("EUR", "USD")),
            rng.randrange(-(10**12), 10**12),
        )

    @property
    def end(self) -> OffsetVector:
        return OffsetVector.of({partition: len(deliveries) for partition, deliveries in enumerate(self.partitions)})

    def between(self, start: OffsetVector, until: OffsetVector) -> Iterable[tuple[int, int, Event | None]]:
        for partition, deliveries in enumerate(self.partitions):
            for at in range(start[partition], until[partition]):
                yield partition, at, deliveries[at]

    def distinct_below(self, until: OffsetVector) -> set[Event]:
        return {event for _, _, event in self.between(OffsetVector(), until) if event is not None}


_MERGES = {
    Merge.SUM: lambda a, b: a + b,
    Merge.MIN: min,
    Merge.MAX: max,
    Merge.XOR: lambda a, b: a ^ b,
}


def partials(view: View, events: Iterable[Event]) -> dict[tuple[object, ...], list[int]]:
    """The naive fold: (key…, window start) -> partials, one event after the other."""
    cells: dict[tuple[object, ...], list[int]] = {}
    for event in events:
        cell = (*(getattr(event, field) for field in view.key), event.seconds - event.seconds % view.window.seconds)
        lifted = [1 if column.field is None else getattr(event, column.field) for column in view.columns]
        known = cells.get(cell)
        cells[cell] = lifted if known is None else [_MERGES[c.merge](a, b) for c, a, b in zip(view.columns, known, lifted, strict=True)]
    return cells


def as_table(view: View, cells: Mapping[tuple[object, ...], Sequence[int]], *, wide: bool = False) -> pa.Table:
    """Cells as the layers hand them over; `wide` sums as decimals, as Spark gives them."""
    columns: dict[str, pa.Array] = {}
    for at, field in enumerate(view.key):
        columns[field] = pa.array([cell[at] for cell in cells], pa.string())
    columns["window_start"] = pa.array([cell[-1] for cell in cells], pa.int64())
    for at, column in enumerate(view.columns):
        kind = pa.decimal128(38, 0) if wide and column.wide else pa.int64()
        lift = Decimal if wide and column.wide else int
        columns[column.name] = pa.array([lift(values[at]) for values in cells.values()], kind)
    return pa.table(columns)


def day_of(seconds: int) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()


def instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown(view: View, events: Iterable[Event], *, total: bool = False) -> list[dict[str, object]]:
    """The rows an answer must hold, in order, without `final`."""
    groups: dict[tuple[object, ...], list[tuple[int, list[int]]]] = {}
    for (*key, window), values in partials(view, events).items():
        groups.setdefault((*key,) if total else (*key, window), []).append((window, values))
    rows = []
    for group in sorted(groups, key=lambda g: [part.encode() if isinstance(part, str) else part for part in g]):
        merged = None
        for _, values in groups[group]:
            merged = values if merged is None else [_MERGES[c.merge](a, b) for c, a, b in zip(view.columns, merged, values, strict=True)]
        windows = [window for window, _ in groups[group]]
        measures = {c.name: v for c, v in zip(view.columns, merged, strict=True) if c.name != "events"}
        edges = {"window_start": instant(min(windows)), "window_end": instant(max(windows) + view.window.seconds)}
        rows.append({**dict(zip(view.key, group, strict=False)), **edges, **measures})
    return rows
