"""Measures: what a view computes of its events, stored as partials that merge and presented late.

A measure declares its partial columns. Each column says how one event is lifted into it and how two of its values
merge; from these the batch layer, the speed layer, the tables and the merged read derive their own form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Merge(StrEnum):
    """How two partial values become one. Each is associative and commutative."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    XOR = "xor"


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """One stored column: an event lifts to the value of `field`, or to 1 where `field` is None."""

    name: str
    merge: Merge
    field: str | None
    wide: bool = False
    """Wide columns are exact beyond 64 bits: numeric in the store, decimal in Spark."""


class Measure(Protocol):
    def columns(self, name: str) -> tuple[PartialColumn, ...]:
        """The partial columns this measure stores when it is called `name`."""

    def present(self, partials: Sequence[int]) -> int | float | None:
        """The shown value of merged partials, in the order of `columns`."""

    def definition(self) -> Mapping[str, object]:
        """What is computed, for the logic fingerprint."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many events."""

    def columns(self, name: str) -> tuple[PartialColumn, ...]:
        return (PartialColumn(name, Merge.SUM, field=None),)

    def present(self, partials: Sequence[int]) -> int:
        return partials[0]

    def definition(self) -> Mapping[str, object]:
        return {"measure": "count"}


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of an integer field; wide, so it never overflows or wraps."""

    field: str

    def columns(self, name: str) -> tuple[PartialColumn, ...]:
        return (PartialColumn(name, Merge.SUM, self.field, wide=True),)

    def present(self, partials: Sequence[int]) -> int:
        return int(partials[0])

    def definition(self) -> Mapping[str, object]:
        return {"measure": "sum", "field": self.field}


@dataclass(frozen=True, slots=True)
class Min:
    """The least value of an integer field."""

    field: str

    def columns(self, name: str) -> tuple[PartialColumn, ...]:
        return (PartialColumn(name, Merge.MIN, self.field),)

    def present(self, partials: Sequence[int]) -> int:
        return partials[0]

    def definition(self) -> Mapping[str, object]:
        return {"measure": "min", "field": self.field}


@dataclass(frozen=True, slots=True)
class Max:
    """The greatest value of an integer field."""

    field: str

    def columns(self, name: str) -> tuple[PartialColumn, ...]:
        return (PartialColumn(name, Merge.MAX, self.field),)

    def present(self, partials: Sequence[int]) -> int:
        return partials[0]

    def definition(self) -> Mapping[str, object]:
        return {"measure": "max", "field": self.field}
