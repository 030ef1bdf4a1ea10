"""A fold that is slow and plain: what the tests compare the real ones with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from views.view import View

Cells = dict[tuple[Any, ...], dict[str, int]]

_MERGE = {"sum": lambda a, b: a + b, "min": min, "max": max, "xor": lambda a, b: a ^ b}


def naive_fold(view: View, events: Iterable[Mapping[str, Any]]) -> Cells:
    """Cells by (key..., window start) of lifted events, each given once."""
    cells: Cells = {}
    for event in events:
        place = (*(event[field] for field in view.key), event[f"window_{view.window.seconds}"])
        lifted = {column.name: 1 if column.field is None else event[column.field] for column in view.columns}
        cells[place] = naive_merge(view, cells[place], lifted) if place in cells else lifted
    return cells


def naive_merge(view: View, one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {column.name: _MERGE[str(column.merge)](one[column.name], other[column.name]) for column in view.columns}


def as_cells(view: View, rows: Iterable[Mapping[str, Any]]) -> Cells:
    """Rows of a folded table as the naive fold gives them."""
    return {
        (*(row[field] for field in view.key), row["window_start"]): {column.name: int(row[column.name]) for column in view.columns}
        for row in rows
    }
