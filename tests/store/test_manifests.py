"""Publishing, rolling back and expiring, one promise at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

import pytest

from serving.errors import ChecksFailed, NightlyLocked, SeamGap, UnknownManifest, ViewNotReady
from serving.store import epochs, generations, manifests, read, schema
from serving.store.database import Connection, connect
from serving.store.records import ManifestId, Query, RunId, SegmentId
from serving.store.vectors import OffsetVector
from tests.store.hand_run import LONG_AGO, Speed, build, load_all, night
from tests.store.tape import DAY, FIRST_DAY, Tape, as_table, day_of, partials, shown
from views.measures import Count
from views.registry import ALL_VIEWS
from views.view import View, WorkedExample
from views.windows import minutes

LINE = "main"
REVENUE = next(view for view in ALL_VIEWS if view.name == "revenue_by_merchant")
FOREVER = timedelta(days=36500)


@pytest.fixture
def speed(conn: Connection, tape: Tape) -> Speed:
    return Speed(conn, LINE, tape, ALL_VIEWS)


def test_an_empty_generation_is_not_sealed_again(conn: Connection, speed: Speed, tape: Tape) -> None:
    assert generations.seal(conn, LINE).generation == 0
    speed.commit(tape.end)
    sealed = generations.seal(conn, LINE)
    assert (sealed.generation, sealed.start, sealed.cut) == (1, OffsetVector(), tape.end)
    assert generations.seal(conn, LINE) == sealed
    assert [(g.generation, g.cut) for g in generations.list_generations(conn, LINE)] == [(0, OffsetVector()), (1, tape.end), (2, None)]


def test_a_run_starts_from_the_current_manifest_and_lists_what_is_sealed_beyond_it(conn: Connection, speed: Speed, tape: Tape) -> None:
    speed.commit(OffsetVector.of({0: 3}))
    generations.seal(conn, LINE)
    speed.commit(tape.end)
    generations.seal(conn, LINE)
    run = manifests.begin_run(conn, LINE)
    assert (run.base.manifest, run.pointer_version, [g.generation for g in run.generations]) == (0, 0, [1, 2])
    assert manifests.begin_run(conn, LINE).run != run.run, "the same session may begin again"


def test_loading_twice_leaves_one_segment_and_the_same_digest(conn: Connection, speed: Speed, tape: Tape) -> None:
    run = manifests.begin_run(conn, LINE)
    cells = {cell: values for cell, values in partials(REVENUE, tape.events).items() if day_of(cell[-1]) == date(2026, 3, 1)}
    table = as_table(REVENUE, cells, wide=True)
    first = manifests.load_segment(conn, LINE, run.run, REVENUE, date(2026, 3, 1), [table])
    turned = [table.slice(at, 1) for at in reversed(range(table.num_rows))]
    second = manifests.load_segment(conn, LINE, run.run, REVENUE, date(2026, 3, 1), turned)
    assert replace(second, segment=first.segment) == first
    assert manifests.list_segments(conn, LINE) == [second]
    assert (first.rows, first.events) == (len(cells), sum(values[-2] for values in cells.values()))
    other = manifests.load_segment(conn, LINE, run.run, REVENUE, date(2026, 3, 1), [table.slice(1)])
    assert other.digest != first.digest
    assert conn.execute(f"SELECT count(*) FROM line_main.batch_{REVENUE.fingerprint}").fetchone() == (other.rows,)
    empty = manifests.load_segment(conn, LINE, run.run, REVENUE, date(2026, 3, 9), [])
    assert (empty.rows, empty.events, empty.id_checksum) == (0, 0, 0)


def test_cells_of_another_day_or_twice_the_same_cell_are_not_loaded(conn: Connection) -> None:
    run = manifests.begin_run(conn, LINE)
    table = as_table(REVENUE, {("m", "EUR", FIRST_DAY + DAY): [1, 2, 1, 3]})
    with pytest.raises(ChecksFailed, match="2026-03-02"):
        manifests.load_segment(conn, LINE, run.run, REVENUE, date(2026, 3, 1), [table])
    with pytest.raises(ChecksFailed, match="one row per key"):
        manifests.load_segment(conn, LINE, run.run, REVENUE, date(2026, 3, 2), [table, table])
    with pytest.raises(NightlyLocked):
        manifests.load_segment(conn, LINE, RunId(uuid4()), REVENUE, date(2026, 3, 2), [table])
    assert manifests.list_segments(conn, LINE) == []


def test_what_is_loaded_is_unseen_until_published(conn: Connection, speed: Speed, tape: Tape) -> None:
    speed.commit(tape.end)
    before = read.read(conn, LINE, REVENUE, Query())
    new = build(conn, LINE, tape, ALL_VIEWS)
    assert read.read(conn, LINE, REVENUE, Query()).rows == before.rows
    published = manifests.publish(conn, LINE, new)
    after = read.read(conn, LINE, REVENUE, Query())
    assert (after.provenance.manifest, after.provenance.cut) == (published.manifest, tape.end)
    assert (before.provenance.from_speed, after.provenance.from_batch, after.provenance.from_speed) == (
        len(tape.events),
        len(tape.events),
        0,
    )
    assert published == manifests.current(conn, LINE)[0] and published.segments == new.segments
    assert manifests.publish(conn, LINE, new) == published, "published twice by the same run is published once"
    assert manifests.current(conn, LINE)[1] == 1


def test_a_result_that_is_incomplete_or_does_not_follow_its_base_is_not_published(conn: Connection, speed: Speed, tape: Tape) -> None:
    speed.commit(tape.end)
    new = build(conn, LINE, tape, ALL_VIEWS)
    (fingerprint, day), segment = next(iter(new.segments.items()))
    wrong = {
        "a segment that is not there": (ChecksFailed, replace(new, segments={**new.segments, (fingerprint, day): SegmentId(999)})),
        "a segment of another day": (ChecksFailed, replace(new, segments={**new.segments, (fingerprint, date(2030, 1, 1)): segment})),
        "a view it does not name": (ChecksFailed, replace(new, fingerprints={})),
        "another cut": (SeamGap, replace(new, cut=OffsetVector.of({0: 1}))),
        "the open generation": (SeamGap, replace(new, generation=2, cut=tape.end)),
        "a generation that is not there": (SeamGap, replace(new, generation=7)),
        "another base": (NightlyLocked, replace(new, base=ManifestId(5))),
        "another version": (NightlyLocked, replace(new, base_pointer_version=3)),
    }
    for error, bad in wrong.values():
        with pytest.raises(error):
            manifests.publish(conn, LINE, bad)
    assert [m.manifest for m in manifests.list_manifests(conn, LINE)] == [0]
    assert manifests.publish(conn, LINE, new).manifest == 1


def test_a_generation_may_be_published_again_for_a_view_that_came_later(conn: Connection, speed: Speed, tape: Tape) -> None:
    speed.commit(tape.end)
    night(conn, LINE, tape, ALL_VIEWS[:2])
    with pytest.raises(ViewNotReady):
        read.read(conn, LINE, ALL_VIEWS[2], Query())
    assert night(conn, LINE, tape, ALL_VIEWS).generation == 1
    assert read.read(conn, LINE, ALL_VIEWS[2], Query()).provenance.from_batch == len(tape.events)


def test_back_and_forth_gives_the_same_rows_and_a_new_base(conn: Connection, speed: Speed, tape: Tape) -> None:
    speed.commit(OffsetVector.of({0: 20}))
    night(conn, LINE, tape, ALL_VIEWS)
    speed.commit(tape.end)
    night(conn, LINE, tape, ALL_VIEWS)
    for manifest in (1, 0, 2, 1):
        assert manifests.roll_back(conn, LINE, ManifestId(manifest)).current
        assert read.read(conn, LINE, REVENUE, Query()).provenance.manifest == manifest
        assert [{**row, "final": 0} for row in read.read(conn, LINE, REVENUE, Query()).rows] == [
            {**row, "final": 0} for row in shown(REVENUE, tape.distinct_below(tape.end))
        ]
    version = manifests.current(conn, LINE)[1]
    manifests.roll_back(conn, LINE, ManifestId(1))
    assert manifests.current(conn, LINE)[1] == version, "nothing moved"
    third = night(conn, LINE, tape, ALL_VIEWS)
    assert (third.manifest, third.base, third.generation) == (3, 1, 2), "ids are never used twice"
    with pytest.raises(UnknownManifest):
        manifests.roll_back(conn, LINE, ManifestId(9))


def test_a_rollback_that_would_silence_a_view_is_refused(conn: Connection, speed: Speed, tape: Tape) -> None:
    speed.commit(OffsetVector.of({0: 20}))
    night(conn, LINE, tape, ALL_VIEWS[:2])
    speed.commit(tape.end)
    night(conn, LINE, tape, ALL_VIEWS)
    with pytest.raises(ViewNotReady, match=ALL_VIEWS[2].name):
        manifests.roll_back(conn, LINE, ManifestId(1))
    assert manifests.current(conn, LINE)[0].manifest == 2


def test_a_rollback_past_expired_rows_is_refused(conn: Connection, speed: Speed, tape: Tape) -> None:
    speed.commit(OffsetVector.of({0: 20}))
    night(conn, LINE, tape, ALL_VIEWS)
    conn.execute("UPDATE line_main.generations SET rows_expired = true WHERE generation = 1")
    with pytest.raises(SeamGap, match="generation 1"):
        manifests.roll_back(conn, LINE, ManifestId(0))


def test_expiry_keeps_what_any_retained_manifest_needs(conn: Connection, speed: Speed, tape: Tape) -> None:
    for part in (1, 2, 3, 4):
        speed.commit(OffsetVector.of({p: offset * part // 4 for p, offset in tape.end}))
        night(conn, LINE, tape, ALL_VIEWS)
    manifests.roll_back(conn, LINE, ManifestId(2))
    gone = manifests.expire(conn, LINE, retained=1, horizon=FOREVER)
    assert (gone.manifests, gone.generations) == ((0, 1, 3), (0, 1, 2))
    assert gone.speed_rows > 0 and gone.batch_rows > 0 and gone.seen_epochs == 0
    kept = manifests.list_manifests(conn, LINE)
    assert [m.manifest for m in kept] == [2, 4]
    named = {segment for m in kept for segment in m.segments.values()}
    assert {segment.segment for segment in manifests.list_segments(conn, LINE)} == named
    for manifest in (4, 2):
        manifests.roll_back(conn, LINE, ManifestId(manifest))
        answer = read.read(conn, LINE, REVENUE, Query())
        assert [{**row, "final": 0} for row in answer.rows] == [
            {**row, "final": 0} for row in shown(REVENUE, tape.distinct_below(tape.end))
        ]
    assert manifests.expire(conn, LINE, retained=1, horizon=FOREVER).manifests == ()


def test_expiry_leaves_a_living_run_its_base_and_its_segments(store_url: str, conn: Connection, speed: Speed, tape: Tape) -> None:
    speed.commit(OffsetVector.of({0: 20}))
    night(conn, LINE, tape, ALL_VIEWS)
    with connect(store_url) as nightly:
        run = manifests.begin_run(nightly, LINE)
        loaded = load_all(nightly, LINE, run, ALL_VIEWS, tape.distinct_below(OffsetVector.of({0: 20})))
        manifests.roll_back(conn, LINE, ManifestId(0))
        gone = manifests.expire(conn, LINE, retained=1, horizon=FOREVER)
        assert gone.segments == () and {s.segment for s in manifests.list_segments(conn, LINE)} >= set(loaded.values())
        manifests.end_run(nightly, LINE, run.run)
    assert set(manifests.expire(conn, LINE, retained=1, horizon=FOREVER).segments) == set(loaded.values())


def test_behind_horizon_and_cut_seen_ids_go_and_epochs_become_one_range(conn: Connection, speed: Speed, tape: Tape) -> None:
    for part in (1, 2, 3, 4, 5):
        speed.commit(OffsetVector.of({p: offset * part // 5 for p, offset in tape.end}))
        if part == 3:
            night(conn, LINE, tape, ALL_VIEWS)
    counts = epochs.epoch_counts(conn, LINE)
    assert manifests.expire(conn, LINE, retained=9, horizon=timedelta(0)).seen_epochs == 0, "manifest 0 is retained and lies before them"
    gone = manifests.expire(conn, LINE, retained=1, horizon=timedelta(0))
    assert (gone.seen_epochs, gone.epochs_merged) == (3, 2)
    ranges = conn.execute("SELECT first_epoch, epoch FROM line_main.epochs ORDER BY epoch").fetchall()
    assert ranges == [(1, 3), (4, 4), (5, 5)]
    assert epochs.epoch_counts(conn, LINE) == counts
    assert len(list(epochs.load_seen(conn, LINE, since=LONG_AGO, most=10**9))) == 2


def test_after_a_long_stop_the_ids_that_the_next_deliveries_may_repeat_are_still_there(conn: Connection, speed: Speed, tape: Tape) -> None:
    speed.commit(tape.end)
    night(conn, LINE, tape, ALL_VIEWS)
    stopped_at = datetime.now(UTC) - timedelta(days=3)
    conn.execute("UPDATE line_main.seen_ids SET newest_log_time = %s, committed_at = %s", (stopped_at, stopped_at))
    conn.execute("UPDATE line_main.frontier SET watermark = %s", (stopped_at,))
    assert manifests.expire(conn, LINE, retained=1, horizon=timedelta(days=1)).seen_epochs == 0
    conn.execute("UPDATE line_main.frontier SET watermark = now()")
    assert manifests.expire(conn, LINE, retained=1, horizon=timedelta(days=1)).seen_epochs == 1


def test_of_the_seen_ids_in_the_horizon_only_the_most_are_kept(conn: Connection, speed: Speed, tape: Tape) -> None:
    for part in (1, 2, 3):
        speed.commit(OffsetVector.of({p: offset * part // 3 for p, offset in tape.end}))
    night(conn, LINE, tape, ALL_VIEWS)
    newest = next(epochs.load_seen(conn, LINE, since=LONG_AGO, most=1))
    most = len(newest.packed) // 16 + 1
    would_load = list(epochs.load_seen(conn, LINE, since=LONG_AGO, most=most))
    assert manifests.expire(conn, LINE, retained=1, horizon=FOREVER, most_ids=most).seen_epochs == 1
    assert list(epochs.load_seen(conn, LINE, since=LONG_AGO, most=10**9)) == would_load


def test_tables_of_logic_that_nothing_names_are_dropped(conn: Connection, speed: Speed, tape: Tape) -> None:
    old = View("usage", (), minutes(1), {"n": Count()}, WorkedExample((), ()))
    new = View("usage", (), minutes(5), {"n": Count()}, WorkedExample((), ()))
    schema.ensure_views(conn, LINE, (*ALL_VIEWS, old))
    Speed(conn, LINE, tape, (*ALL_VIEWS, old)).commit(OffsetVector.of({0: 20}))
    schema.ensure_views(conn, LINE, (*ALL_VIEWS, new))
    assert manifests.expire(conn, LINE, retained=1, horizon=FOREVER).fingerprints == (), "its rows may still be asked for"
    speed = Speed(conn, LINE, tape, (*ALL_VIEWS, new))
    speed.commit(tape.end)
    night(conn, LINE, tape, (*ALL_VIEWS, new))
    assert manifests.expire(conn, LINE, retained=1, horizon=FOREVER).fingerprints == (old.fingerprint,)
    with pytest.raises(ViewNotReady):
        read.read(conn, LINE, old, Query())
    assert read.read(conn, LINE, new, Query()).provenance.from_batch == len(tape.distinct_below(tape.end))
    schema.ensure_views(conn, LINE, (*ALL_VIEWS, old))
    with pytest.raises(ViewNotReady):
        read.read(conn, LINE, old, Query())
