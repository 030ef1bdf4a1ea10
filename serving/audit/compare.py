"""What is served beside the truth, cell by cell, in both directions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from serving.audit.recount import Cell, CellName, Position, Tally
from serving.store.records import Answer
from serving.store.vectors import OffsetVector
from views.event import Reason
from views.view import View

Shown = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Difference:
    """One cell that is not served as it is. `expected` is None where there is no such cell, `served` where it is not shown."""

    view: str
    key: Mapping[str, str]
    window_start: str
    expected: Shown | None
    served: Shown | None

    def to_json(self) -> dict[str, object]:
        return {
            "view": self.view,
            "key": dict(self.key),
            "window_start": self.window_start,
            "expected": self.expected,
            "served": self.served,
        }


@dataclass(frozen=True, slots=True)
class ViewAudit:
    view: str
    cells_compared: int
    differences: tuple[Difference, ...]
    events: int
    """Distinct events below the answer's frontier."""
    from_batch: int
    from_speed: int
    manifest: int
    frontier: OffsetVector

    def to_json(self) -> dict[str, object]:
        return {
            "view": self.view,
            "cells_compared": self.cells_compared,
            "differ": len(self.differences),
            "events": self.events,
            "from_batch": self.from_batch,
            "from_speed": self.from_speed,
            "manifest": self.manifest,
            "frontier": self.frontier.to_json(),
        }


def compare_view(view: View, cells: Mapping[CellName, Cell], answer: Answer, *, sample: int | None = None, seed: int = 0) -> ViewAudit:
    """Every cell of a view's answer, or a random sample of them, beside the cells that were recounted at its frontier."""
    served, repeated = _by_cell(view, answer.rows)
    names = cells.keys() | served.keys()
    if sample is not None and sample < len(names):
        names = set(random.Random(seed).sample(sorted(names), sample))
    expected = {name: _expected(view, name, cells[name]) for name in names if name in cells}
    wrong = [name for name in names if name in repeated or not _same(expected.get(name), served.get(name))]
    return ViewAudit(
        view=view.name,
        cells_compared=len(names),
        differences=tuple(_difference(view, name, expected.get(name), served.get(name)) for name in sorted(wrong)),
        events=sum(cell.events for cell in cells.values()),
        from_batch=answer.provenance.from_batch,
        from_speed=answer.provenance.from_speed,
        manifest=answer.provenance.manifest,
        frontier=answer.provenance.frontier,
    )


def compare_quarantine(truth: Mapping[Position, Reason], served: Mapping[Position, str]) -> list[str]:
    """One sentence per delivery that is quarantined and should not be, the other way round, or for another reason."""
    problems = []
    for position in sorted(truth.keys() | served.keys()):
        expected, found = truth.get(position), served.get(position)
        if expected != found:
            problems.append(f"{position[0]}/{position[1]}: expected {expected or 'an event'}, quarantine has {found or 'nothing'}")
    return problems


def compare_counts(truth: Tally, served: Mapping[str, int]) -> list[str]:
    """One sentence per total that the line states and the recount does not confirm."""
    counted = {"read": truth.read, "counted": truth.counted, "duplicates": truth.duplicates, "quarantined": truth.quarantined}
    return [f"{name}: expected {value}, the line states {served[name]}" for name, value in counted.items() if served[name] != value]


def _by_cell(view: View, rows: Sequence[Shown]) -> tuple[dict[CellName, Shown], set[CellName]]:
    """The rows by the cell they show, and the cells that are shown more than once."""
    shown: dict[CellName, Shown] = {}
    repeated = set()
    for row in rows:
        start = datetime.fromisoformat(str(row["window_start"]))
        name = CellName(tuple(str(row[field]) for field in view.key), int(start.timestamp()))
        if name in shown:
            repeated.add(name)
        shown[name] = row
    return shown, repeated


def _expected(view: View, name: CellName, cell: Cell) -> Shown:
    edges = {"window_start": _instant(name.window_start), "window_end": _instant(name.window_start + view.window.seconds)}
    return {**dict(zip(view.key, name.key, strict=True)), **edges, **cell.measures, "id_checksum": cell.id_checksum}


def _same(expected: Shown | None, served: Shown | None) -> bool:
    """Equal in every value and its type; a served row may say more (`final`)."""
    if expected is None or served is None:
        return False
    return all(name in served and type(served[name]) is type(value) and served[name] == value for name, value in expected.items())


def _difference(view: View, name: CellName, expected: Shown | None, served: Shown | None) -> Difference:
    fields = [*view.measures, "id_checksum"]
    return Difference(
        view=view.name,
        key=dict(zip(view.key, name.key, strict=True)),
        window_start=_instant(name.window_start),
        expected=None if expected is None else {field: expected[field] for field in fields},
        served=None if served is None else {field: served.get(field) for field in fields},
    )


def _instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
