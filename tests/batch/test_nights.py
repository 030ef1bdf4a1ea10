"""Nights on real Kafka, Delta and PostgreSQL, each compared cell by cell with a naive recount of the log."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from batch_layer import checks, night
from batch_layer.night import run_night
from batch_layer.rebuild import run_rebuild
from infra.crash import CrashPoint
from serving.errors import NightlyLocked, SeamGap
from serving.store import epochs, generations, manifests, quarantine, schema
from serving.store.records import ManifestId
from tests.batch.hand_fed_line import DAY_ONE, HandFedLine, day_of_events, event, run_plain
from views.measures import Count, Max
from views.registry import ALL_VIEWS
from views.view import View
from views.windows import minutes

pytestmark = pytest.mark.stack

DAY_TWO = DAY_ONE + timedelta(days=1)
DAY_THREE = DAY_ONE + timedelta(days=2)


class Died(Exception):
    """Stands for the end of the process."""


class Fall(CrashPoint):
    """Ends the night at a step as a kill would, but leaves the test's process and its Spark session alive."""

    def reach(self, step: str) -> None:
        if step == self._step:
            raise Died(step)


def test_two_nights_with_late_and_redelivered_events_across_the_cut_are_exact(line: HandFedLine) -> None:
    first = day_of_events(0, 300, DAY_ONE)
    line.send(first)
    line.speed()
    done = line.night()
    assert done.published and done.manifest == 1
    assert done.deliveries == done.ingested == len(first) == done.counted + done.duplicates + done.quarantined
    line.assert_exact()
    again = [value for _, value in first[:40] if value]
    line.send(day_of_events(300, 300, DAY_TWO, late_for=DAY_ONE, again=again, seed=2))
    line.speed()
    line.assert_exact()
    done = line.night()
    assert done.manifest == 2 and done.duplicates >= 30
    assert [str(day) for day in done.days_touched] == ["2026-03-01", "2026-03-02"]
    line.assert_exact()
    line.assert_exact(as_of=2)
    truth = line.truth()
    assert {(row.partition, row.offset) for row in quarantine.read(line.connection, "main", 100)} == set(truth.quarantine)
    assert manifests.current(line.connection, "main")[0].counts == {
        "deliveries": truth.total.read,
        "events": truth.total.counted,
        "duplicates": truth.total.duplicates,
        "quarantined": truth.total.quarantined,
    }
    again_at_once = line.night()
    assert not again_at_once.published and again_at_once.manifest == 2


def test_only_touched_days_get_new_segments(line: HandFedLine) -> None:
    for number, day in enumerate((DAY_ONE, DAY_TWO, DAY_THREE)):
        line.send([(0, event(number, day)), (2, event(10 + number, day + timedelta(hours=3)))])
        line.speed()
        done = line.night()
        assert (done.segments_new, done.segments_kept) == (3, 3 * number)
    line.send([(1, event(20, DAY_TWO)), (1, event(0, DAY_ONE))])
    line.speed()
    done = line.night()
    assert [str(day) for day in done.days_touched] == ["2026-03-02"]
    assert (done.counted, done.duplicates, done.segments_new, done.segments_kept) == (1, 1, 3, 6)
    line.assert_exact()


def test_after_a_rollback_the_next_night_builds_on_what_is_published(line: HandFedLine) -> None:
    for number, day in enumerate((DAY_ONE, DAY_TWO, DAY_THREE)):
        line.send(day_of_events(number * 100, 100, day, late_for=DAY_ONE, seed=number))
        line.speed()
        if number < 2:
            line.night()
    manifests.roll_back(line.connection, "main", ManifestId(1))
    line.assert_exact()
    done = line.night()
    base = next(each for each in manifests.list_manifests(line.connection, "main") if each.manifest == done.manifest)
    assert base.base == 1 and len(base.winner_runs) == 2
    line.assert_exact()
    with line.workplace() as place:
        report = run_rebuild(place, run_plain, publish=False)
    assert report.segments == 9 and report.differences == ()


@pytest.mark.parametrize(
    "step", ["after_seal", "mid_ingest", "after_winners", "after_results", "mid_load", "before_publish", "after_publish", "mid_expire"]
)
def test_a_night_that_died_at_any_step_changes_no_answer_and_the_next_one_is_exact(fallen: HandFedLine, step: str) -> None:
    line = fallen
    number = 1000 + len(line.seen)
    again = [event(number - 1, DAY_ONE), event(1, DAY_ONE)]
    line.send(day_of_events(number, 40, DAY_TWO, late_for=DAY_ONE, again=again, seed=number))
    line.speed()
    with line.workplace(crash=Fall(step)) as place, pytest.raises(Died):
        run_night(place, run_plain)
    line.assert_exact()
    line.send([(0, event(number + 50, DAY_THREE))])
    line.speed()
    line.night()
    line.assert_exact()
    line.assert_exact(as_of=line.current())


def test_rows_of_dead_runs_are_removed_by_the_next_night(fallen: HandFedLine) -> None:
    line = fallen
    line.send([(0, event(5000 + len(line.seen), DAY_ONE))])
    line.speed()
    with line.workplace(crash=Fall("mid_load")) as place, pytest.raises(Died):
        run_night(place, run_plain)
    line.night()
    needed = {str(run) for run in manifests.current(line.connection, "main")[0].winner_runs}
    with line.workplace() as place:
        for table in (place.tables.winners, place.tables.of_view(ALL_VIEWS[0])):
            held = {row.run for row in place.spark().read.format("delta").load(table).select("run").distinct().collect()}
            assert held <= needed


def test_rebuild_gives_the_published_segments_and_tells_when_it_does_not(fallen: HandFedLine) -> None:
    line = fallen
    line.night()
    before = manifests.current(line.connection, "main")
    with line.workplace() as place:
        report = run_rebuild(place, run_plain, publish=False)
    assert report.segments == len(before[0].segments) and report.differences == ()
    assert manifests.current(line.connection, "main")[1] == before[1]
    line.connection.execute("UPDATE line_main.segments SET digest = 'damaged' WHERE segment = %s", (max(before[0].segments.values()),))
    with line.workplace() as place:
        report = run_rebuild(place, run_plain, publish=True)
    assert len(report.differences) == 1 and report.night is not None and report.night.manifest == before[0].manifest + 1
    line.assert_exact()


def test_of_two_payloads_of_one_id_the_earlier_generation_wins_and_stays(line: HandFedLine) -> None:
    line.send([(3, event(1, DAY_ONE, amount=100, transaction_id="same"))])
    line.speed()
    line.night()
    line.send([(0, event(2, DAY_TWO, amount=900, transaction_id="same")), (0, event(3, DAY_TWO))])
    line.speed()
    done = line.night()
    assert (done.counted, done.duplicates) == (1, 1)
    line.assert_exact()
    manifests.roll_back(line.connection, "main", ManifestId(1))
    with line.workplace() as place:
        assert run_rebuild(place, run_plain, publish=False).differences == ()


def test_a_view_added_later_gets_every_day(line: HandFedLine) -> None:
    line.send(day_of_events(0, 60, DAY_ONE))
    line.speed()
    line.night()
    measures = {"payments": Count(), "largest": Max("amount_cents")}
    added = View("largest_by_merchant", ("merchant_id",), minutes(60), measures, ALL_VIEWS[0].worked_example)
    line.views = (*line.views, added)
    line.send(day_of_events(100, 60, DAY_TWO))
    schema.ensure_views(line.connection, "main", line.views)
    line.speed()
    done = line.night()
    assert done.segments_new == 3 + 2 and done.segments_kept == 3
    line.assert_exact()


def test_a_night_refuses_while_the_master_dataset_is_behind_the_cut(line: HandFedLine) -> None:
    line.send([(0, event(1, DAY_ONE)), (1, event(2, DAY_ONE))])
    line.speed()
    with line.workplace() as place:
        scope = night.seal(place)
        with pytest.raises(SeamGap, match="partition 0 is at 0, the cut at 1"):
            night.recompute_views(place, scope)
        manifests.end_run(place.connection, "main", scope.run)
    assert line.current() == 0
    line.assert_exact()
    assert line.night().manifest == 1


def test_a_second_night_and_a_second_ingest_are_refused_while_the_first_works(line: HandFedLine) -> None:
    line.send([(0, event(1, DAY_ONE))])
    line.speed()
    with line.workplace() as first, line.workplace() as second:
        night.seal(first)
        with pytest.raises(NightlyLocked, match="Another process is writing"):
            night.seal(second)
        first.hold(first.tables.master_dataset)
        with pytest.raises(NightlyLocked, match="Another process is writing"):
            night.ingest(second)
    assert line.night().published


def test_a_dry_run_writes_nothing(line: HandFedLine) -> None:
    line.send(day_of_events(0, 20, DAY_ONE))
    line.speed()
    before = (generations.list_generations(line.connection, "main"), epochs.read_frontier(line.connection, "main"), line.current())
    with line.workplace() as place:
        steps = {step.name: step.does for step in night.plan(place)}
    assert list(steps) == ["seal", "ingest", "recompute", "check", "load", "publish", "expire"]
    assert steps["publish"] == "generation 1 on manifest 0"
    after = (generations.list_generations(line.connection, "main"), epochs.read_frontier(line.connection, "main"), line.current())
    assert before == after and list(line.settings.home.glob("*")) == []


def test_checks_name_what_does_not_add_up(line: HandFedLine) -> None:
    line.send([(0, event(1, DAY_ONE))])
    line.speed()
    with line.workplace() as place:
        scope = night.seal(place)
        night.ingest(place)
        done = night.recompute_views(place, scope)
        short = replace(done, partitions=tuple(replace(each, won=0) for each in done.partitions))
        with pytest.raises(checks.ChecksFailed, match="partition 0: 1 read, but 0 won"):
            night.check_results(place, scope, short)
        other = replace(done, days=tuple(replace(each, id_checksum=7) for each in done.days))
        with pytest.raises(checks.ChecksFailed, match="system_usage on 2026-03-01: 1 events of checksum"):
            night.check_results(place, scope, other)


def test_deliveries_lost_from_the_master_dataset_stop_the_night_and_are_never_a_smaller_number(line: HandFedLine) -> None:
    line.send([(number % 4, event(number, DAY_ONE)) for number in range(40)])
    line.speed()
    with line.workplace() as place:
        night.ingest(place)
        table = f"delta.`{place.tables.master_dataset}`"
        place.spark().sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
        place.spark().sql(f"DELETE FROM {table} WHERE partition = 2 AND offset = 5")
    with pytest.raises(checks.ChecksFailed, match=r"holds 39 deliveries .* of which the speed layer read 40"):
        line.night()
    assert line.current() == 0
    line.assert_exact()
