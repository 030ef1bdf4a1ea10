"""The truth by a naive fold: every delivery in order, every id once, a dictionary of cells, Python's integers.

Deliberately slow and plain. A view's key, window and measures are taken from its declaration; how its partials are
stored, merged or presented is not used here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import NamedTuple

from serving.audit.judge import Event, judge
from serving.store.vectors import OffsetVector
from views.event import Reason
from views.view import View

Position = tuple[int, int]
"""(partition, offset)"""


class Delivery(NamedTuple):
    """One record of the topic as the broker gives it."""

    partition: int
    offset: int
    log_time_ms: int
    value: bytes | None


class Judged(NamedTuple):
    partition: int
    offset: int
    log_time_ms: int
    verdict: Event | Reason


class CellName(NamedTuple):
    key: tuple[str, ...]
    window_start: int
    """Seconds since 1970, UTC."""


@dataclass(slots=True)
class Cell:
    """The events of one cell, folded."""

    measures: dict[str, int]
    events: int = 0
    id_checksum: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """read == counted + duplicates + quarantined, always."""

    read: int = 0
    counted: int = 0
    duplicates: int = 0
    quarantined: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.read + other.read,
            self.counted + other.counted,
            self.duplicates + other.duplicates,
            self.quarantined + other.quarantined,
        )


@dataclass(frozen=True, slots=True)
class Truth:
    cells: Mapping[str, Mapping[CellName, Cell]]
    """By view name."""
    partitions: Mapping[int, Tally]
    quarantine: Mapping[Position, Reason]
    conflicts: int
    """How many ids came with more than one payload: which of them counts is decided by order alone."""

    @property
    def total(self) -> Tally:
        return sum(self.partitions.values(), Tally())


def judge_log(deliveries: Iterable[Delivery]) -> list[Judged]:
    """Every delivery with its verdict. Judging costs most of a recount, and one judged log can be folded many times."""
    return [Judged(each.partition, each.offset, each.log_time_ms, judge(each.value)) for each in deliveries]


def recount(
    deliveries: Iterable[Delivery],
    views: Sequence[View],
    until: OffsetVector | None = None,
    *,
    since: OffsetVector | None = None,
    cuts: Sequence[OffsetVector] = (),
) -> Truth:
    """The truth of these deliveries between two vectors; see `fold_log`."""
    return fold_log(judge_log(deliveries), views, until, since=since, cuts=cuts)


def fold_log(
    log: Sequence[Judged],
    views: Sequence[View],
    until: OffsetVector | None = None,
    *,
    since: OffsetVector | None = None,
    cuts: Sequence[OffsetVector] = (),
) -> Truth:
    """The truth of the judged deliveries at or above `since` and below `until`.

    Of the deliveries of one id the one of the earliest generation counts, then the least (log time, partition,
    offset). `cuts` are the ends of the generations, oldest first; they matter only where payloads conflict.
    """
    counts: dict[int, list[int]] = {}
    quarantine: dict[Position, Reason] = {}
    winners: dict[str, Event] = {}
    conflicting: set[str] = set()
    for each in _in_order(_between(log, since, until), cuts):
        tally = counts.setdefault(each.partition, [0, 0, 0, 0])
        tally[0] += 1
        if isinstance(each.verdict, Reason):
            tally[3] += 1
            quarantine[each.partition, each.offset] = each.verdict
        elif (winner := winners.get(each.verdict.transaction_id)) is None:
            tally[1] += 1
            winners[each.verdict.transaction_id] = each.verdict
        else:
            tally[2] += 1
            if winner != each.verdict:
                conflicting.add(winner.transaction_id)
    return Truth(
        cells={view.name: fold_events(view, winners.values()) for view in views},
        partitions={partition: Tally(*tally) for partition, tally in sorted(counts.items())},
        quarantine=quarantine,
        conflicts=len(conflicting),
    )


def fold_events(view: View, events: Iterable[Event]) -> dict[CellName, Cell]:
    """The cells of distinct events."""
    plan = [(name, *_fold_of(name, measure.definition())) for name, measure in view.measures.items()]
    seconds_of_window = view.window.seconds
    cells: dict[CellName, Cell] = {}
    for event in events:
        seconds = event.event_time_us // 1_000_000
        name = CellName(tuple([getattr(event, field) for field in view.key]), seconds - seconds % seconds_of_window)
        cell = cells.get(name)
        if cell is None:
            cell = cells[name] = Cell({})
        for measure, merge, field in plan:
            value = 1 if field is None else getattr(event, field)
            cell.measures[measure] = merge(cell.measures[measure], value) if cell.events else value
        cell.events += 1
        cell.id_checksum ^= event.id_hash
    return cells


def _fold_of(name: str, definition: Mapping[str, object]) -> tuple[Callable[[int, int], int], str | None]:
    """How a measure takes up another value, and the event's field that gives it; None counts the event itself."""
    folds: dict[str, Callable[[int, int], int]] = {"count": add, "sum": add, "min": min, "max": max}
    kind = str(definition["measure"])
    if kind not in folds:
        raise ValueError(f"the audit cannot recount {name!r}, a measure of kind {kind!r}: teach it in serving/audit/recount.py")
    return folds[kind], str(definition["field"]) if "field" in definition else None


def _between(log: Iterable[Judged], since: OffsetVector | None, until: OffsetVector | None) -> Iterator[Judged]:
    floor = dict(since or ())
    ceiling = None if until is None else dict(until)
    for each in log:
        if each.offset >= floor.get(each.partition, 0) and (ceiling is None or each.offset < ceiling.get(each.partition, 0)):
            yield each


def _in_order(log: Iterable[Judged], cuts: Sequence[OffsetVector]) -> list[Judged]:
    ends = [dict(cut) for cut in cuts]

    def place(each: Judged) -> tuple[int, int, int, int]:
        generation = next((number for number, end in enumerate(ends) if each.offset < end.get(each.partition, 0)), len(ends))
        return generation, each.log_time_ms, each.partition, each.offset

    return sorted(log, key=place)
