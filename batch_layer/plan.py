"""What a night will do, decided before it does anything: pure functions of what the store and the log say.

A plan is a list of small steps that can be printed, compared and executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from serving.store.records import Frontier, Generation, Manifest, Run, RunId
from serving.store.vectors import OffsetVector
from views.event import RULES_FINGERPRINT
from views.view import View

RULES = "rules"
"""The name under which a manifest's checks carry the event rules it was computed by."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What one run computes: which deliveries are new to it, on which winners it builds, which views need every day."""

    run: RunId
    base: Manifest
    pointer_version: int
    generations: tuple[Generation, ...]
    """That hold the deliveries to judge, oldest first."""
    start: OffsetVector
    cut: OffsetVector
    generation: int
    watermark: datetime | None
    runs: tuple[RunId, ...]
    """Whose winners are history to this run."""
    every_day: tuple[str, ...]
    """Names of the views of which the base has nothing."""
    publishes: bool
    """False where the base already says all there is to say."""

    @property
    def offsets(self) -> int:
        return self.start.distance_to(self.cut)


def night_scope(run: Run, generations: Sequence[Generation], views: Sequence[View]) -> Scope:
    """Everything sealed since the run's base; all of history where the event rules changed since."""
    base = run.base
    if base.generation and base.checks.get(RULES) != RULES_FINGERPRINT:
        return _from_raw(run, generations, run.generations, views)
    known = set(base.fingerprints.values())
    missing = tuple(view.name for view in views if view.fingerprint not in known)
    last = run.generations[-1] if run.generations else None
    return Scope(
        run=run.run,
        base=base,
        pointer_version=run.pointer_version,
        generations=run.generations,
        start=base.cut,
        cut=last.cut if last and last.cut else base.cut,
        generation=last.generation if last else base.generation,
        watermark=last.watermark if last else base.watermark,
        runs=base.winner_runs,
        every_day=missing,
        publishes=bool(last or (missing and base.generation)),
    )


def rebuild_scope(run: Run, generations: Sequence[Generation], views: Sequence[View]) -> Scope:
    """All of history up to the base's own cut, without its winners."""
    return _from_raw(run, generations, (), views)


def _from_raw(run: Run, generations: Sequence[Generation], sealed: Sequence[Generation], views: Sequence[View]) -> Scope:
    base = run.base
    judged = [*(each for each in generations if 0 < each.generation <= base.generation), *sealed]
    last = judged[-1] if judged else None
    return Scope(
        run=run.run,
        base=base,
        pointer_version=run.pointer_version,
        generations=tuple(judged),
        start=judged[0].start if judged else base.cut,
        cut=last.cut if last and last.cut else base.cut,
        generation=last.generation if last else base.generation,
        watermark=last.watermark if last else base.watermark,
        runs=(),
        every_day=tuple(view.name for view in views),
        publishes=bool(last),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan."""

    name: str
    does: str


def plan_night(
    base: Manifest,
    frontier: Frontier,
    generations: Sequence[Generation],
    views: Sequence[View],
    reach: OffsetVector,
    log_end: OffsetVector,
    retained: int,
) -> list[Step]:
    """The steps a night would take now. Sealing and the log go on meanwhile, so the real cut may be later."""
    open_generation = generations[-1]
    seals = open_generation.start != frontier.until
    sealed = [each for each in generations if each.cut is not None and each.generation > base.generation]
    generation = open_generation.generation if seals else (sealed[-1].generation if sealed else base.generation)
    rules_changed = base.generation > 0 and base.checks.get(RULES) != RULES_FINGERPRINT
    known = set(base.fingerprints.values())
    missing = [view.name for view in views if view.fingerprint not in known]
    ingests = reach.distance_to(log_end)
    steps = [
        Step("seal", f"generation {open_generation.generation} at {frontier.until}" if seals else "nothing: the open generation is empty"),
        Step(
            "ingest",
            f"{ingests:,} offsets, {reach} to {log_end}" if ingests else f"nothing: the master dataset is at the log's end {log_end}",
        ),
    ]
    if generation == base.generation and not (missing and base.generation):
        return [*steps, Step("publish", f"nothing: manifest {base.manifest} is up to date"), _expire(retained)]
    what = (
        "every delivery (the event rules changed)"
        if rules_changed
        else f"{base.cut.distance_to(frontier.until):,} offsets since {base.cut}"
    )
    return [
        *steps,
        Step("recompute", f"{what}; every day of {', '.join(missing)}" if missing else what),
        Step("check", "conservation by partition, events and id checksum by view and day, totals against the base"),
        Step("load", f"the touched days of {', '.join(view.name for view in views)}"),
        Step("publish", f"generation {generation} on manifest {base.manifest}"),
        _expire(retained),
    ]


def _expire(retained: int) -> Step:
    return Step("expire", f"what no one of the newest {retained} manifests needs")
