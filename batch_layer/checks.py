"""What must add up before a result may be published. Compares what was read, what was judged and what the tables hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from batch_layer.master_dataset import Reach
from batch_layer.plan import RULES, Scope
from batch_layer.recompute import Recomputed
from batch_layer.results import DayOfCells
from batch_layer.winners import DayOfWinners
from serving.errors import ChecksFailed, SeamGap
from serving.store.records import Manifest, Segment, SegmentId
from serving.store.vectors import OffsetVector
from views.event import RULES_FINGERPRINT

_SHOWN = 5


def require_deliveries(reach: Reach, topic_id: str, start: OffsetVector, cut: OffsetVector) -> None:
    """`SeamGap` unless the master dataset holds every delivery from `start` to the cut, in every partition."""
    if reach.holds(topic_id, start, cut):
        return
    held = reach.until(topic_id)
    short = [f"partition {partition} is at {held[partition]}, the cut at {end}" for partition, end in cut if held[partition] < end]
    raise SeamGap(
        f"The master dataset does not reach the cut: {'; '.join(short)}."
        if short
        else f"The master dataset begins at {reach.starts[topic_id]}, after {start}, from where this run must read.",
        untouched="Nothing was published; the last manifest is served.",
        fix="seam ingest, then seam nightly" if short else "Point SEAM_MASTER_DATASET to a copy that holds them.",
        cut=cut.to_json(),
        reach=held.to_json(),
    )


def winners_by_day(base: Manifest, stored: Mapping[SegmentId, Segment]) -> dict[date, DayOfWinners]:
    """What the base holds of each day, by its segments; `ChecksFailed` if its views do not agree."""
    days: dict[date, DayOfWinners] = {}
    for (_, day), segment in base.segments.items():
        found = DayOfWinners(day, stored[segment].events, stored[segment].id_checksum)
        if days.setdefault(day, found) != found:
            raise _failed([f"the views of manifest {base.manifest} disagree on {day}: {found} and {days[day]}"])
    return days


def check(
    scope: Scope, recomputed: Recomputed, before: Mapping[date, DayOfWinners], cells: Mapping[str, Sequence[DayOfCells]]
) -> dict[str, object]:
    """The checks a manifest carries, all passed; `ChecksFailed` with every deviation otherwise.

    `before` is what the base holds of each day, `cells` what the run's result tables hold, by view name.
    """
    due = dict(before)
    for new in recomputed.days:
        due[new.day] = due.get(new.day, DayOfWinners(new.day, 0, 0)).with_more(new.events, new.id_checksum)
    problems = [
        *_agreement(scope, recomputed),
        *_conservation(scope, recomputed),
        *_totals(scope, due, recomputed),
        *_views(scope, due, recomputed.touched, cells),
    ]
    if problems:
        raise _failed(problems)
    return {
        RULES: RULES_FINGERPRINT,
        "conservation": {
            str(each.judged.partition): [each.read, each.won, each.duplicates, each.judged.quarantined] for each in recomputed.partitions
        },
        "cells_checked": sum(day.rows for days in cells.values() for day in days),
        "days_checked": sum(len(days) for days in cells.values()),
        "copies": sum(each.judged.copies for each in recomputed.partitions),
    }


def _failed(problems: Sequence[str]) -> ChecksFailed:
    more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return ChecksFailed(
        f"{len(problems)} checks failed: {'; '.join(problems[:_SHOWN])}{more}.",
        untouched="Nothing was published; the last manifest is served.",
        fix="seam rebuild",
        problems=list(problems),
    )


def _conservation(scope: Scope, recomputed: Recomputed) -> list[str]:
    """Every delivery read is counted, repeated or quarantined, and stands at a position of its own."""
    problems = []
    for each in recomputed.partitions:
        number, judged = each.judged.partition, each.judged
        offsets = scope.cut[number] - scope.start[number]
        if each.read != each.won + each.duplicates + judged.quarantined:
            spent = f"{each.won} won, {each.duplicates} repeated and {judged.quarantined} quarantined"
            problems.append(f"partition {number}: {each.read} read, but {spent}")
        if judged.strays:
            problems.append(f"partition {number}: {judged.strays} deliveries belong to no generation")
        if each.read > offsets:
            problems.append(f"partition {number}: {each.read} deliveries at {offsets} offsets")
    return problems


def _agreement(scope: Scope, recomputed: Recomputed) -> list[str]:
    """Both layers read the same deliveries. Offsets have holes, so without this a lost file would be a smaller number."""
    here, there = sum(each.read for each in recomputed.partitions), sum(each.read for each in scope.generations)
    stretch = f"from {scope.start} to {scope.cut}"
    return [] if here == there else [f"the master dataset holds {here} deliveries {stretch}, of which the speed layer read {there}"]


def _totals(scope: Scope, due: Mapping[date, DayOfWinners], recomputed: Recomputed) -> list[str]:
    """All days together hold the base's events and the new winners."""
    won = sum(each.won for each in recomputed.partitions)
    before = int(scope.base.counts.get("events", 0)) if scope.runs else 0
    held = sum(each.events for each in due.values())
    return [] if held == before + won else [f"{held} winners in all, not {before} of the base and {won} new ones"]


def _views(scope: Scope, due: Mapping[date, DayOfWinners], touched: Sequence[date], cells: Mapping[str, Sequence[DayOfCells]]) -> list[str]:
    """Every view counts every winner of a day once: as many events, and of the same ids."""
    problems = []
    for name, days in cells.items():
        missing = set(due if name in scope.every_day else touched) - {each.day for each in days}
        problems += [f"{name} has no cells of {day}" for day in sorted(missing)]
        problems += [text for each in days if (text := _differs(name, each, due.get(each.day)))]
    return problems


def _differs(name: str, found: DayOfCells, expected: DayOfWinners | None) -> str:
    if expected is None:
        return f"{name} has cells of {found.day}, which no winner touches"
    if (found.events, found.id_checksum) == (expected.events, expected.id_checksum):
        return ""
    return f"{name} on {found.day}: {found.events} events of checksum {found.id_checksum}, not {expected.events} of {expected.id_checksum}"
