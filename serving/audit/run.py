"""One audit of a line: take the answers first, then recount the log up to the frontier that each of them states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from serving.audit.compare import Difference, ViewAudit, compare_counts, compare_quarantine, compare_view
from serving.audit.recount import Delivery, Tally, Truth, fold_log, judge_log
from serving.audit.served import Served, ServedBySql
from serving.errors import UnknownLine
from serving.store import quarantine
from serving.store.database import Connection
from serving.store.generations import list_generations
from serving.store.read import seam
from serving.store.records import LineInfo
from serving.store.schema import read_line
from serving.store.vectors import OffsetVector
from views.view import View

_ALL = 10_000_000

Log = Callable[[OffsetVector, OffsetVector], Iterable[Delivery]]
"""The deliveries between two vectors; ones outside may be among them."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    views: tuple[ViewAudit, ...]
    deliveries: Tally
    """Of the log up to the line's frontier."""
    conflicts: int
    """Ids that came with more than one payload."""
    problems: tuple[str, ...]
    """What does not add up besides cells: quarantine, totals, provenance."""

    @property
    def cells_compared(self) -> int:
        return sum(view.cells_compared for view in self.views)

    @property
    def differences(self) -> tuple[Difference, ...]:
        return tuple(difference for view in self.views for difference in view.differences)

    @property
    def exact(self) -> bool:
        return not self.differences and not self.problems

    def to_json(self) -> dict[str, object]:
        return {
            "exact": self.exact,
            "cells_compared": self.cells_compared,
            "differ": len(self.differences),
            "views": [view.to_json() for view in self.views],
            "deliveries": {
                "read": self.deliveries.read,
                "counted": self.deliveries.counted,
                "duplicates": self.deliveries.duplicates,
                "quarantined": self.deliveries.quarantined,
            },
            "conflicts": self.conflicts,
            "problems": list(self.problems),
            "differences": [difference.to_json() for difference in self.differences],
        }


def audit(
    conn: Connection,
    line: str,
    views: Sequence[View],
    log: Log,
    *,
    served: Served | None = None,
    sample: int | None = None,
) -> AuditReport:
    """Compare every cell of `views`, the quarantine and the totals of a line with a recount of `log`."""
    info = _line(conn, line)
    answers = [(served or ServedBySql(conn, line)).answer(view) for view in views]
    state = seam(conn, line)
    kept = {(row.partition, row.offset): row.reason for row in quarantine.read(conn, line, _ALL)}
    # Asked last: a cut that was made after an answer lies at or above its frontier and cannot change its order.
    cuts = [generation.cut for generation in list_generations(conn, line) if generation.cut is not None]

    until = reduce(OffsetVector.union, (answer.provenance.frontier for answer in answers), state.frontier)
    judged = judge_log(log(info.origin, until))

    def truth_at(frontier: OffsetVector, of: Sequence[View]) -> Truth:
        return fold_log(judged, of, frontier, since=info.origin, cuts=cuts)

    whole = truth_at(
        state.frontier, [view for view, answer in zip(views, answers, strict=True) if answer.provenance.frontier == state.frontier]
    )
    audited = []
    for view, answer in zip(views, answers, strict=True):
        truth = whole if view.name in whole.cells else truth_at(answer.provenance.frontier, [view])
        audited.append(compare_view(view, truth.cells[view.name], answer, sample=sample))
    below = {position: reason for position, reason in kept.items() if position[1] < state.frontier[position[0]]}
    problems = [
        *(f"quarantine {problem}" for problem in compare_quarantine(whole.quarantine, below)),
        *(f"totals {problem}" for problem in compare_counts(whole.total, state.counts)),
        *_wrong_provenance(audited),
    ]
    return AuditReport(tuple(audited), whole.total, whole.conflicts, tuple(problems))


def _line(conn: Connection, line: str) -> LineInfo:
    info = read_line(conn, line)
    if info is None:
        raise UnknownLine(
            f"There is no line {line} in this database.", fix="Count something first: seam speed --until-caught-up.", line=line
        )
    return info


def _wrong_provenance(audited: Sequence[ViewAudit]) -> list[str]:
    return [
        f"provenance of {view.view}: {view.from_batch} + {view.from_speed} events, expected {view.events}"
        for view in audited
        if view.from_batch + view.from_speed != view.events
    ]
