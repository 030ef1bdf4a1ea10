"""Rebuild: every day again from the raw deliveries, ignoring all winners, and its segments compared with the published ones.

A check, and the way out of any doubt: equal digests mean that the nights since the origin added up to one recount.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from batch_layer import night
from batch_layer.ingest import Ingested
from batch_layer.night import Loaded, NightReport, RunStep
from batch_layer.plan import Scope, rebuild_scope
from batch_layer.workplace import Workplace
from serving.store import generations, manifests, schema
from serving.store.records import Segment
from views.view import Fingerprint


@dataclass(frozen=True, slots=True)
class Difference:
    view: str
    day: date
    published: str
    """Digest of the published segment; empty where there is none."""
    rebuilt: str


@dataclass(frozen=True, slots=True)
class RebuildReport:
    manifest: int
    """That the rebuilt segments were compared with."""
    segments: int
    differences: tuple[Difference, ...]
    unpublished: int
    """Rebuilt segments of views that the manifest does not know."""
    night: NightReport | None
    """What was published in its place, if that was asked for."""


def run_rebuild(place: Workplace, step: RunStep, *, publish: bool) -> RebuildReport:
    """Recomputes everything up to the published cut and compares; publishes the rebuilt segments only if told to.

    Guarantees: unless told to publish, nothing a reader can see changes; what it wrote expires with it.
    """
    scope = step("begin", lambda: begin(place))
    if not scope.publishes:
        step("expire", lambda: night.expire(place, scope))
        return RebuildReport(scope.base.manifest, 0, (), 0, None)
    recomputed = step("recompute", lambda: night.recompute_views(place, scope))
    passed = step("check", lambda: night.check_results(place, scope, recomputed))
    loaded = step("load", lambda: night.load(place, scope))
    differences, compared = step("compare", lambda: compare(place, scope, loaded))
    published = None
    if publish:
        manifest = step("publish", lambda: night.publish(place, scope, recomputed, passed, loaded))
        nothing = Ingested(scope.cut, scope.cut, deliveries=0, commits=0, retention_margin=None)
        published = night.report(scope, nothing, recomputed, loaded, manifest)
    step("expire", lambda: night.expire(place, scope))
    return RebuildReport(scope.base.manifest, compared, differences, len(loaded.new) - compared, published)


def begin(place: Workplace) -> Scope:
    """Begins a run on what is published now, without sealing anything."""
    place.hold(place.tables.winners)
    schema.ensure_views(place.connection, place.line, place.views)
    run = manifests.begin_run(place.connection, place.line)
    scope = rebuild_scope(run, generations.list_generations(place.connection, place.line), place.views)
    place.expect(scope.offsets)
    return scope


def compare(place: Workplace, scope: Scope, loaded: Loaded) -> tuple[tuple[Difference, ...], int]:
    """The segments that differ, and how many were compared: all of every view that the manifest knows."""
    stored = {segment.segment: segment for segment in manifests.list_segments(place.connection, place.line)}
    names = {view.fingerprint: view.name for view in place.views if view.fingerprint in set(scope.base.fingerprints.values())}
    published = {key: stored[segment] for key, segment in scope.base.segments.items() if key[0] in names}
    rebuilt = {(segment.fingerprint, segment.day): segment for segment in loaded.new if segment.fingerprint in names}
    keys = sorted(published.keys() | rebuilt.keys())
    found = (
        Difference(names[key[0]], key[1], _digest(published, key), _digest(rebuilt, key))
        for key in keys
        if _digest(published, key) != _digest(rebuilt, key)
    )
    return tuple(found), len(keys)


def _digest(segments: Mapping[tuple[Fingerprint, date], Segment], key: tuple[Fingerprint, date]) -> str:
    return segments[key].digest if key in segments else ""
