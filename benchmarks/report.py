"""How results are shown: one table per part, then every target with what was found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """A promise and what was found. `at_least` says on which side of `bound` it is kept."""

    name: str
    found: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.found >= self.bound if self.at_least else self.found <= self.bound


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(slots=True)
class Result:
    """What one part found: tables to read, figures to keep, promises to judge."""

    part: str
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        targets = [asdict(target) | {"met": target.met} for target in self.targets]
        return {"part": self.part, "figures": self.figures, "targets": targets, "notes": self.notes}


def show(result: Result, *, judged: bool) -> None:
    from rich.console import Console
    from rich.table import Table as Shown

    console = Console(highlight=False, width=None if Console().is_terminal else 140)
    for table in result.tables:
        shown = Shown(title=table.title, title_justify="left", min_width=len(table.title) + 2)
        for place, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if place else "left", no_wrap=True)
        for row in table.rows:
            shown.add_row(*(cell if isinstance(cell, str) else number(cell) for cell in row))
        console.print(shown)
    for target in result.targets:
        side = "at least" if target.at_least else "at most"
        verdict = ("met" if target.met else "MISSED") if judged else "not judged at this size"
        console.print(f"{target.name}: {number(target.found)} ({side} {number(target.bound)}: {verdict})")
    for note in result.notes:
        console.print(f"Note: {note}")
    console.print()


def number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def machine() -> dict[str, Any]:
    """The size of this machine and how busy it was: a figure means little without."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {"cores": os.cpu_count(), "memory_gib": round(memory, 1), "load_before": round(os.getloadavg()[0], 2)}
