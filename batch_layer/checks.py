"""What must add up before a result may be published. Compares what was read, what was judged and what the tables hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from batch_layer.master_dataset import Reach
from batch_layer.plan import RULES, Scope
from batch_layer.recompute import PartitionAccount, Recomputed
from batch_layer.results import DayOfCells
from batch_layer.winners import DayOfWinners
from serving.errors import ChecksFailed, SeamGap
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


def check(scope: Scope, recomputed: Recomputed, cells: Mapping[str, Sequence[DayOfCells]]) -> dict[str, object]:
    """The checks a manifest carries, all passed; `ChecksFailed` with every deviation otherwise. `cells` is by view name."""
    problems = [*_conservation(scope, recomputed.partitions), *_views(scope, recomputed, cells), *_totals(scope, recomputed)]
    if problems:
        more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ChecksFailed(
            f"{len(problems)} checks failed: {'; '.join(problems[:_SHOWN])}{more}.",
            untouched="Nothing was published; the last manifest is served.",
            fix="seam rebuild",
            problems=problems,
        )
    return {
        RULES: RULES_FINGERPRINT,
        "conservation": {
            str(each.judged.partition): [each.read, each.won, each.duplicates, each.judged.quarantined] for each in recomputed.partitions
        },
        "cells_checked": sum(day.rows for days in cells.values() for day in days),
        "days_checked": len(recomputed.days),
        "copies": sum(each.judged.copies for each in recomputed.partitions),
    }


def _conservation(scope: Scope, partitions: Sequence[PartitionAccount]) -> list[str]:
    problems = []
    for each in partitions:
        number, judged = each.judged.partition, each.judged
        if each.read != each.won + each.duplicates + judged.quarantined:
            problems.append(
                f"partition {number}: {each.read} read, but {each.won} won, {each.duplicates} repeated and {judged.quarantined} quarantined"
            )
        if judged.strays:
            problems.append(f"partition {number}: {judged.strays} deliveries belong to no generation")
        if each.read > scope.cut[number] - scope.start[number]:
            problems.append(f"partition {number}: {each.read} deliveries at {scope.cut[number] - scope.start[number]} offsets")
    return problems


def _views(scope: Scope, recomputed: Recomputed, cells: Mapping[str, Sequence[DayOfCells]]) -> list[str]:
    """Every view counts every winner of a day once: as many events, and of the same ids."""
    expected = {each.day: each for each in recomputed.days}
    problems = []
    for name, days in cells.items():
        due = set(expected) if name in scope.every_day else set(recomputed.touched)
        problems += [f"{name} has no cells of {day}" for day in sorted(due - {each.day for each in days})]
        problems += [text for each in days if (text := _differs(name, each, expected.get(each.day)))]
    return problems


def _differs(name: str, found: DayOfCells, expected: DayOfWinners | None) -> str:
    if expected is None:
        return f"{name} has cells of {found.day}, which no winner touches"
    if (found.events, found.id_checksum) == (expected.events, expected.id_checksum):
        return ""
    return f"{name} on {found.day}: {found.events} events of checksum {found.id_checksum}, not {expected.events} of {expected.id_checksum}"


def _totals(scope: Scope, recomputed: Recomputed) -> list[str]:
    """Where every day was folded, all days together hold the base's winners and the new ones."""
    if not scope.every_day:
        return []
    won = sum(each.won for each in recomputed.partitions)
    before = int(scope.base.counts.get("events", 0)) if scope.runs else 0
    held = sum(each.events for each in recomputed.days)
    return [] if held == before + won else [f"{held} winners in all, not {before} of the base and {won} new ones"]


def days_between(days: Sequence[date]) -> str:
    """A few words for a list of days."""
    if not days:
        return "none"
    return str(days[0]) if len(days) == 1 else f"{len(days)} ({min(days)} to {max(days)})"
