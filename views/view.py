"""A view: a question declared once, from which both layers, the tables and the routes are derived."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from views.event import EVENT_FIELDS, RULES_FINGERPRINT, FieldKind
from views.measures import Measure, Merge, PartialColumn
from views.windows import Tumbling

Fingerprint = NewType("Fingerprint", str)

EVENTS = PartialColumn("events", Merge.SUM, field=None)
"""Every cell carries how many events it counted …"""
ID_CHECKSUM = PartialColumn("id_checksum", Merge.XOR, field="id_hash")
"""… and the xor of their id hashes: a lost event and a double one cannot hide in a right count."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_RESERVED = {
    "window_start",
    "window_end",
    "day",
    "final",
    "events",
    "id_checksum",
    "generation",
    "segment",
    "limit",
    "cursor",
    "from",
    "to",
}


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """A few events and the rows they must give: documentation that the tests execute."""

    events: tuple[Mapping[str, object], ...]
    rows: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class View:
    name: str
    key: tuple[str, ...]
    window: Tumbling
    measures: Mapping[str, Measure]
    worked_example: WorkedExample
    fingerprint: Fingerprint = field(init=False)
    """Names what the view computes: another key, window, measure or event rule is another fingerprint."""

    def __post_init__(self) -> None:
        texts = {each.name for each in EVENT_FIELDS if each.kind in (FieldKind.TEXT, FieldKind.CODE)}
        integers = {each.name for each in EVENT_FIELDS if each.kind is FieldKind.INTEGER}
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"view name {self.name!r}: use 1 to 40 of a-z, 0-9 and _, beginning with a letter")
        for name in self.key:
            if name not in texts - {"transaction_id"}:
                raise ValueError(f"view {self.name}: key field {name!r} is none of {sorted(texts - {'transaction_id'})}")
        if len(set(self.key)) < len(self.key):
            raise ValueError(f"view {self.name}: a key field comes twice in {self.key}")
        for column in self.columns:
            if not _NAME.fullmatch(column.name) or column.name in self.key:
                raise ValueError(f"view {self.name}: {column.name!r} cannot name a measure")
            if column.field is not None and column.field not in integers | {"id_hash"}:
                raise ValueError(f"view {self.name}: measure field {column.field!r} is none of {sorted(integers)}")
        if _RESERVED & {*self.key, *self.measures}:
            raise ValueError(f"view {self.name}: {sorted(_RESERVED & {*self.key, *self.measures})} are reserved names")
        object.__setattr__(self, "fingerprint", self._fingerprint())

    @property
    def measure_columns(self) -> tuple[PartialColumn, ...]:
        return tuple(column for name, measure in self.measures.items() for column in measure.columns(name))

    @property
    def columns(self) -> tuple[PartialColumn, ...]:
        """All partial columns of a cell, in the order in which they are stored."""
        return (*self.measure_columns, EVENTS, ID_CHECKSUM)

    def _fingerprint(self) -> Fingerprint:
        logic = {
            "key": list(self.key),
            "window": self.window.definition(),
            "measures": {name: dict(measure.definition()) for name, measure in self.measures.items()},
            "rules": RULES_FINGERPRINT,
        }
        return Fingerprint(hashlib.sha256(json.dumps(logic, sort_keys=True).encode()).hexdigest()[:12])

    def present(self, partials: Mapping[str, int]) -> dict[str, int | float | None]:
        """The shown measures of one cell's merged partials."""
        return {
            name: measure.present([partials[column.name] for column in measure.columns(name)]) for name, measure in self.measures.items()
        }
