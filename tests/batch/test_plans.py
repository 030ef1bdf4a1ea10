"""What a night decides before it does anything. No JVM, no services."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from uuid import uuid4

import pytest

from batch_layer.ingest import chunks
from batch_layer.master_dataset import Reach
from batch_layer.plan import RULES, night_scope, plan_night, rebuild_scope
from batch_layer.retries import with_retries
from batch_layer.upkeep import needed_runs
from serving.errors import ChecksFailed, StoreUnavailable
from serving.store.records import Frontier, Generation, Manifest, ManifestId, Marker, Run, RunId
from serving.store.vectors import OffsetVector
from views.event import RULES_FINGERPRINT
from views.registry import ALL_VIEWS

ORIGIN = OffsetVector()
EMPTY = Manifest(ManifestId(0), 0, ORIGIN, None, None, {}, {}, (), {}, {}, datetime(2026, 3, 1, tzinfo=UTC), current=True)


def at(**offsets: int) -> OffsetVector:
    return OffsetVector.of({int(name[1:]): end for name, end in offsets.items()})


def published(generation: int, cut: OffsetVector, *, rules: str = RULES_FINGERPRINT, views: int = 3) -> Manifest:
    fingerprints = {view.name: view.fingerprint for view in ALL_VIEWS[:views]}
    return replace(
        EMPTY,
        manifest=ManifestId(generation),
        generation=generation,
        cut=cut,
        fingerprints=fingerprints,
        winner_runs=(RunId(uuid4()),),
        checks={RULES: rules},
    )


GENERATIONS = [
    Generation(0, ORIGIN, ORIGIN, None),
    Generation(1, ORIGIN, at(p0=10), None),
    Generation(2, at(p0=10), at(p0=25, p1=4), None),
    Generation(3, at(p0=25, p1=4), None, None),
]


def run_on(base: Manifest) -> Run:
    sealed = tuple(each for each in GENERATIONS if each.cut is not None and each.generation > base.generation)
    return Run(RunId(uuid4()), base, 7, sealed)


def test_a_night_computes_what_was_sealed_since_its_base() -> None:
    scope = night_scope(run_on(published(1, at(p0=10))), GENERATIONS, ALL_VIEWS)
    assert (scope.start, scope.cut, scope.generation, scope.offsets) == (at(p0=10), at(p0=25, p1=4), 2, 19)
    assert scope.every_day == () and scope.publishes and len(scope.runs) == 1


def test_a_night_with_nothing_new_publishes_nothing() -> None:
    assert not night_scope(run_on(published(2, at(p0=25, p1=4))), GENERATIONS, ALL_VIEWS).publishes


def test_a_view_the_base_lacks_is_reason_enough_to_publish_and_needs_every_day() -> None:
    scope = night_scope(run_on(published(2, at(p0=25, p1=4), views=2)), GENERATIONS, ALL_VIEWS)
    assert scope.publishes and scope.every_day == (ALL_VIEWS[2].name,) and scope.offsets == 0 and scope.generation == 2


def test_other_event_rules_make_a_night_start_from_the_raw_deliveries() -> None:
    scope = night_scope(run_on(published(1, at(p0=10), rules="older")), GENERATIONS, ALL_VIEWS)
    assert (scope.start, scope.cut, scope.runs) == (ORIGIN, at(p0=25, p1=4), ())
    assert [each.generation for each in scope.generations] == [1, 2]
    assert scope.every_day == tuple(view.name for view in ALL_VIEWS)


def test_a_rebuild_stays_at_the_published_cut() -> None:
    scope = rebuild_scope(run_on(published(1, at(p0=10))), GENERATIONS, ALL_VIEWS)
    assert (scope.start, scope.cut, scope.generation, scope.runs) == (ORIGIN, at(p0=10), 1, ())
    assert not rebuild_scope(run_on(EMPTY), GENERATIONS, ALL_VIEWS).publishes


def test_a_plan_says_what_each_step_would_do() -> None:
    frontier = Frontier(at(p0=30, p1=4), {}, 9, 3, None)
    steps = plan_night(published(1, at(p0=10)), frontier, GENERATIONS, ALL_VIEWS, at(p0=10), at(p0=31, p1=4), 14)
    said = {step.name: step.does for step in steps}
    assert said["seal"] == "generation 3 at {0: 30, 1: 4}"
    assert said["ingest"] == "25 offsets, {0: 10} to {0: 31, 1: 4}"
    assert said["recompute"] == "24 offsets since {0: 10}"
    assert said["publish"] == "generation 3 on manifest 1"


def test_a_plan_without_anything_new_publishes_nothing() -> None:
    cut = at(p0=25, p1=4)
    steps = plan_night(published(2, cut), Frontier(cut, {}, 9, 3, None), GENERATIONS, ALL_VIEWS, cut, cut, 14)
    assert [step.name for step in steps] == ["seal", "ingest", "publish", "expire"]
    assert steps[2].does == "nothing: manifest 2 is up to date"


def test_chunks_tile_a_range_and_every_partition_advances_in_proportion() -> None:
    start, until = at(p0=5, p2=7), at(p0=105, p1=50, p2=7)
    parts = list(chunks(start, until, 40))
    assert len(parts) == 4 and parts[0][0] == start and parts[-1][1] == until
    assert all(one[1] == two[0] for one, two in pairwise(parts))
    assert all(0 < one.distance_to(two) <= 41 for one, two in parts)
    assert list(chunks(until, until, 40)) == []


def test_a_commit_says_what_the_master_dataset_holds_of_every_incarnation_of_the_topic() -> None:
    reach = Reach().after("old", at(p0=2), at(p0=9), {0: Marker(8, None, -5)}, "a").after("new", ORIGIN, at(p1=3), {}, "b")
    reach = reach.after("new", at(p1=3), at(p1=7), {}, "c")
    assert Reach.from_metadata(reach.to_metadata()) == reach and reach.append == 3
    assert reach.until("old") == at(p0=9) and reach.until("new") == at(p1=7) and reach.until("other") == ORIGIN
    assert reach.holds("new", at(p1=1), at(p1=7)) and not reach.holds("new", ORIGIN, at(p0=1, p1=7))
    assert reach.holds("old", at(p0=2), at(p0=9)) and not reach.holds("old", at(p0=1), at(p0=9))
    assert reach.holds("other", ORIGIN, ORIGIN) and not reach.holds("other", ORIGIN, at(p0=1))
    assert [Reach.from_metadata(text) for text in ("", "5", "{}", "not json")] == [None] * 4


def test_runs_that_any_retained_manifest_is_built_on_are_needed() -> None:
    one, two = published(1, ORIGIN), published(2, ORIGIN)
    assert needed_runs([EMPTY, one, two]) == {*one.winner_runs, *two.winner_runs}


def test_a_step_is_tried_again_only_where_its_error_says_so() -> None:
    tries: list[str] = []

    def fails(error: Exception, times: int) -> str:
        tries.append("try")
        if len(tries) <= times:
            raise error
        return "done"

    assert with_retries(lambda: fails(StoreUnavailable("gone"), 3), on_retry=lambda *said: None, pause=lambda delay: None) == "done"
    assert len(tries) == 4
    tries.clear()
    with pytest.raises(ChecksFailed):
        with_retries(lambda: fails(ChecksFailed("wrong"), 1), on_retry=lambda *said: None, pause=lambda delay: None)
    assert len(tries) == 1
