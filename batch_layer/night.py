"""A night, step by step, in the protocol's order: seal, ingest, recompute, check, load, publish, expire.

Each step may be tried again and hands plain values to the next. Who runs them, Prefect or a plain loop, is the caller's
choice: `run_night` is given the way to run one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Protocol, TypeVar

from batch_layer import checks
from batch_layer.delta_log import commit_tagged, read_files
from batch_layer.ingest import Ingested, Progress, catch_up, plan_ingest
from batch_layer.master_dataset import read_reach
from batch_layer.plan import Scope, Step, night_scope, plan_night
from batch_layer.recompute import Recomputed, recompute
from batch_layer.results import count_cells, days_of
from batch_layer.upkeep import compact, drop_dead_rows, needed_runs
from batch_layer.workplace import Workplace
from batch_layer.writer_lock import sole_writer
from serving.errors import ChecksFailed
from serving.store import epochs, generations, manifests, quarantine, schema
from serving.store.records import Expired, Manifest, NewManifest, Segment, SegmentId
from views.view import Fingerprint

T = TypeVar("T")


class RunStep(Protocol):
    def __call__(self, name: str, work: Callable[[], T]) -> T:
        """Runs one step, again where its error says that this may help."""


@dataclass(frozen=True, slots=True)
class NightReport:
    """What a night did."""

    generation: int
    cut: dict[str, int]
    manifest: int
    published: bool
    ingested: int
    deliveries: int = 0
    counted: int = 0
    duplicates: int = 0
    quarantined: int = 0
    days_touched: tuple[date, ...] = ()
    segments_new: int = 0
    segments_kept: int = 0
    warnings: tuple[str, ...] = ()


def plan(place: Workplace) -> list[Step]:
    """What a night would do now. Reads the store, the log and the tables' logs; writes nothing, starts Spark only if a log is lost."""
    connection, info = place.connection, place.info
    base, _ = manifests.current(connection, place.line)
    frontier = epochs.read_frontier(connection, place.line)
    ingest_plan = plan_ingest(place.tables.master_dataset, place.log, info, place.spark)
    listed = generations.list_generations(connection, place.line)
    return plan_night(base, frontier, listed, place.views, ingest_plan.start, ingest_plan.until, place.settings.retained_manifests)


def run_night(place: Workplace, step: RunStep, progress: Progress = lambda done, planned: None) -> NightReport:
    """One whole night.

    Guarantees: dying anywhere before the publish step ends changes nothing a reader can see, and the next night starts
    from what is published; run again, a night with nothing new publishes nothing.
    """
    scope = step("seal", lambda: seal(place))
    ingested = step("ingest", lambda: ingest(place, progress))
    if not scope.publishes:
        step("expire", lambda: expire(place, scope))
        return NightReport(
            scope.generation, scope.cut.to_json(), scope.base.manifest, False, ingested.deliveries, warnings=ingested.warnings
        )
    recomputed = step("recompute", lambda: recompute_views(place, scope))
    passed = step("check", lambda: check_results(place, scope, recomputed))
    loaded = step("load", lambda: load(place, scope))
    manifest = step("publish", lambda: publish(place, scope, recomputed, passed, loaded))
    step("expire", lambda: expire(place, scope))
    return report(scope, ingested, recomputed, loaded, manifest)


def seal(place: Workplace) -> Scope:
    """Seals the open generation and begins a run on what is published now; the run is alone until it expires or the process ends."""
    place.hold(place.tables.winners)
    schema.ensure_views(place.connection, place.line, place.views)
    generations.seal(place.connection, place.line)
    place.crash.reach("after_seal")
    run = manifests.begin_run(place.connection, place.line)
    scope = night_scope(run, generations.list_generations(place.connection, place.line), place.views)
    place.expect(scope.offsets)
    return scope


def ingest(place: Workplace, progress: Progress = lambda done, planned: None) -> Ingested:
    """Catches the master dataset up with the log's end, which is at or beyond every cut."""
    table, info = place.tables.master_dataset, place.info
    with sole_writer(place.connection, table):
        ingest_plan = plan_ingest(table, place.log, info, place.spark)
        place.expect(ingest_plan.offsets)
        done = catch_up(ingest_plan, place.log, info, place.spark, progress=progress, crash=place.crash)
        if done.commits:
            compact(place.spark(), table, "log_date")
    return done


def recompute_views(place: Workplace, scope: Scope) -> Recomputed:
    """Winners and cells of the run, from a master dataset that reaches the cut; `SeamGap` if it does not."""
    info = place.info
    reach = read_reach(place.tables.master_dataset, place.spark)
    checks.require_deliveries(reach, info.topic_id, scope.start, scope.cut)
    return recompute(
        place.spark(),
        scope,
        place.tables,
        info.topic_id,
        place.views,
        keep=lambda rows: quarantine.add(place.connection, place.line, rows),
        crash=place.crash,
    )


@dataclass(frozen=True, slots=True)
class Passed:
    """The checks that passed and the versions of the tables they looked at, as the manifest will carry them."""

    checks: dict[str, object]


def check_results(place: Workplace, scope: Scope, recomputed: Recomputed) -> Passed:
    """Adds up what the result tables hold and compares it with the winners; `ChecksFailed` on any deviation."""
    cells = {}
    for view in place.views:
        table = place.tables.of_view(view)
        cells[view.name] = [count_cells(table, day, files) for day, files in days_of(table, scope.run).items()]
    before = checks.winners_by_day(scope.base, _stored_segments(place)) if scope.runs else {}
    tables = {"winners": place.tables.winners, **{view.name: place.tables.of_view(view) for view in place.views}}
    tagged = {name: commit_tagged(table, str(scope.run)) for name, table in tables.items()}
    versions = {name: commit.version for name, commit in tagged.items() if commit is not None}
    return Passed({**checks.check(scope, recomputed, before, cells), "table_versions": versions})


@dataclass(frozen=True, slots=True)
class Loaded:
    """Every segment the new manifest will name."""

    new: tuple[Segment, ...] = ()
    kept: dict[tuple[Fingerprint, date], SegmentId] = field(default_factory=dict)

    @property
    def named(self) -> dict[tuple[Fingerprint, date], SegmentId]:
        return {**self.kept, **{(segment.fingerprint, segment.day): segment.segment for segment in self.new}}


def load(place: Workplace, scope: Scope) -> Loaded:
    """Loads the run's cells into the store as segments that no reader sees yet; keeps the base's for all other days."""
    new = []
    for view in place.views:
        table = place.tables.of_view(view)
        for day, files in days_of(table, scope.run).items():
            new.append(manifests.load_segment(place.connection, place.line, scope.run, view, day, read_files(table, files)))
            place.crash.reach("mid_load")
    incremental = {view.fingerprint for view in place.views if view.name not in scope.every_day}
    replaced = {(segment.fingerprint, segment.day) for segment in new}
    kept = {key: segment for key, segment in scope.base.segments.items() if key[0] in incremental and key not in replaced}
    return Loaded(tuple(new), kept)


def publish(place: Workplace, scope: Scope, recomputed: Recomputed, passed: Passed, loaded: Loaded) -> Manifest:
    """Names the segments in a new manifest and points to it."""
    counts = _counts(scope, recomputed)
    _check_totals(place, loaded, counts["events"])
    place.crash.reach("before_publish")
    manifest = manifests.publish(
        place.connection,
        place.line,
        NewManifest(
            run=scope.run,
            base=scope.base.manifest,
            base_pointer_version=scope.pointer_version,
            generation=scope.generation,
            cut=scope.cut,
            watermark=scope.watermark,
            fingerprints={view.name: view.fingerprint for view in place.views},
            segments=loaded.named,
            winner_runs=(*scope.runs, scope.run),
            counts=counts,
            checks=passed.checks,
        ),
    )
    place.crash.reach("after_publish")
    return manifest


def expire(place: Workplace, scope: Scope) -> Expired:
    """Removes what no retained manifest needs, in the store and in the Delta tables; the run's lock is freed, its table's kept."""
    manifests.end_run(place.connection, place.line, scope.run)
    horizon = timedelta(hours=place.settings.horizon_hours)
    retained, most_ids = place.settings.retained_manifests, place.settings.horizon_ids
    gone = manifests.expire(place.connection, place.line, retained=retained, horizon=horizon, most_ids=most_ids)
    place.crash.reach("mid_expire")
    needed = needed_runs(manifests.list_manifests(place.connection, place.line))
    for table in (place.tables.winners, *(place.tables.of_view(view) for view in place.views)):
        drop_dead_rows(place.spark, table, needed)
    if scope.publishes:
        compact(place.spark(), place.tables.winners, "day")
    return gone


def report(scope: Scope, ingested: Ingested, recomputed: Recomputed, loaded: Loaded, manifest: Manifest) -> NightReport:
    partitions = recomputed.partitions
    return NightReport(
        generation=scope.generation,
        cut=scope.cut.to_json(),
        manifest=manifest.manifest,
        published=True,
        ingested=ingested.deliveries,
        deliveries=sum(each.read for each in partitions),
        counted=sum(each.won for each in partitions),
        duplicates=sum(each.duplicates for each in partitions),
        quarantined=sum(each.judged.quarantined for each in partitions),
        days_touched=recomputed.touched,
        segments_new=len(loaded.new),
        segments_kept=len(loaded.kept),
        warnings=ingested.warnings,
    )


def _counts(scope: Scope, recomputed: Recomputed) -> dict[str, int]:
    """Of all history below the cut: what the base counted and what this run added."""
    base = scope.base.counts if scope.runs else {}
    new = {
        "deliveries": sum(each.read for each in recomputed.partitions),
        "events": sum(each.won for each in recomputed.partitions),
        "duplicates": sum(each.duplicates for each in recomputed.partitions),
        "quarantined": sum(each.judged.quarantined for each in recomputed.partitions),
    }
    return {name: int(base.get(name, 0)) + count for name, count in new.items()}


def _check_totals(place: Workplace, loaded: Loaded, events: int) -> None:
    """All the segments of a view together, new and kept, hold every event once."""
    stored = _stored_segments(place)
    for view in place.views:
        held = sum(stored[segment].events for (fingerprint, _), segment in loaded.named.items() if fingerprint == view.fingerprint)
        if held != events:
            raise ChecksFailed(
                f"The segments of {view.name} hold {held} events, but there are {events} winners.",
                untouched="Nothing was published; the last manifest is served.",
                fix="seam rebuild",
                view=view.name,
            )


def _stored_segments(place: Workplace) -> dict[SegmentId, Segment]:
    return {segment.segment: segment for segment in manifests.list_segments(place.connection, place.line)}
