"""The merged read as a user meets it: filters, pages, totals, final rows, refusals, and the same rows in SQL."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from serving.errors import BadRequest, UnknownLine, UnknownManifest, ViewNotReady
from serving.store import epochs, generations, read, schema
from serving.store.cursors import encode_cursor
from serving.store.database import Connection
from serving.store.records import Answer, ManifestId, Query
from serving.store.vectors import OffsetVector
from tests.store.hand_run import Speed, night
from tests.store.tape import FIRST_DAY, Event, Tape, shown
from views.measures import Count, Max, Min
from views.registry import ALL_VIEWS
from views.view import View, WorkedExample
from views.windows import days

LINE = "main"
REVENUE = next(view for view in ALL_VIEWS if view.name == "revenue_by_merchant")
USAGE = next(view for view in ALL_VIEWS if view.name == "system_usage")


def rows(answer: Answer) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name != "final"} for row in answer.rows]


@pytest.fixture
def both_sides(conn: Connection, tape: Tape) -> Tape:
    """Half of the tape is published, half is in two later generations."""
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    speed.commit(OffsetVector.of({p: offset // 2 for p, offset in tape.end}))
    night(conn, LINE, tape, ALL_VIEWS)
    speed.commit(OffsetVector.of({p: offset * 3 // 4 for p, offset in tape.end}))
    generations.seal(conn, LINE)
    speed.commit(tape.end)
    return tape


def pages(conn: Connection, view: View, *, total: bool, limit: int) -> Iterator[Answer]:
    cursor = None
    while True:
        page = read.read(conn, LINE, view, Query(total=total, limit=limit, cursor=cursor))
        yield page
        cursor = page.next
        if cursor is None:
            return


def test_following_the_pages_gives_what_one_read_gives(conn: Connection, both_sides: Tape) -> None:
    truth = both_sides.distinct_below(both_sides.end)
    for view, total, limit in product(ALL_VIEWS, (False, True), (1, 3, 1000)):
        whole = read.read(conn, LINE, view, Query(total=total))
        followed = list(pages(conn, view, total=total, limit=limit))
        assert all(len(page.rows) <= limit for page in followed)
        assert [row for page in followed for row in page.rows] == whole.rows
        assert sum(page.provenance.from_batch + page.provenance.from_speed for page in followed) == len(truth)
        assert rows(whole) == shown(view, truth, total=total)


def test_a_filter_by_any_key_field_gives_the_rows_of_that_key(conn: Connection, both_sides: Tape) -> None:
    truth = shown(REVENUE, both_sides.distinct_below(both_sides.end))
    for key in ({"merchant_id": "m-1"}, {"currency": "USD"}, {"merchant_id": "é,\"'\n\\", "currency": "EUR"}, {"merchant_id": "m-3"}):
        expected = [row for row in truth if all(row[field] == value for field, value in key.items())]
        assert rows(read.read(conn, LINE, REVENUE, Query(key=key))) == expected
        assert rows(read.read(conn, LINE, REVENUE, Query(key=key, limit=1))) == expected[:1]


def test_from_and_to_select_by_window_start_half_open(conn: Connection, both_sides: Tape) -> None:
    start = datetime.fromtimestamp(FIRST_DAY + 60, UTC)
    truth = shown(USAGE, both_sides.distinct_below(both_sides.end))
    for end in (start + timedelta(minutes=2), start + timedelta(days=1), start):
        answer = read.read(conn, LINE, USAGE, Query(start=start, end=end))
        edges = [datetime.fromisoformat(str(row["window_start"])) for row in answer.rows]
        assert all(start <= edge < end for edge in edges)
        assert rows(answer) == [row for row in truth if start <= datetime.fromisoformat(str(row["window_start"])) < end]


def test_a_row_is_final_when_only_the_batch_counted_it_and_its_window_is_behind_the_watermark(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    speed.commit(tape.end)
    assert not any(row["final"] for row in read.read(conn, LINE, USAGE, Query()).rows)
    published = night(conn, LINE, tape, ALL_VIEWS)
    assert published.watermark is not None
    for row in read.read(conn, LINE, USAGE, Query()).rows:
        assert row["final"] == (datetime.fromisoformat(str(row["window_end"])) <= published.watermark)
    late = Event("late", FIRST_DAY, "a-1", "m-1", "EUR", 5)
    tape.partitions[0].append(late)
    speed.commit(tape.end)
    first = read.read(conn, LINE, USAGE, Query(limit=1)).rows[0]
    assert first["window_start"] == "2026-03-01T00:00:00Z" and first["final"] is False
    assert not read.read(conn, LINE, USAGE, Query(total=True)).rows[0]["final"]


def test_sums_go_beyond_64_bits_on_both_sides(conn: Connection) -> None:
    tape = Tape(random.Random(3), partitions=1)
    huge = (1 << 63) - 1
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    for number in range(6):
        tape.partitions[0].append(Event(f"t-{number}", FIRST_DAY, "a", "m", "EUR", huge))
        speed.commit(tape.end)
        if number == 2:
            night(conn, LINE, tape, ALL_VIEWS)
    answer = read.read(conn, LINE, REVENUE, Query())
    assert answer.rows[0]["amount_cents"] == 6 * huge
    assert (answer.provenance.from_batch, answer.provenance.from_speed) == (3, 3)
    assert read.read(conn, LINE, REVENUE, Query(as_of=ManifestId(1))).rows[0]["amount_cents"] == 3 * huge
    assert conn.execute("SELECT amount_cents FROM seam.revenue_by_merchant").fetchone() == (6 * huge,)


def test_a_bad_question_names_what_is_wrong(conn: Connection, both_sides: Tape) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    other_view = encode_cursor(USAGE, (), FIRST_DAY)
    questions = {
        "field": Query(key={"shop": "m-1"}),
        "nul": Query(key={"merchant_id": "a\x00"}),
        "surrogate": Query(key={"merchant_id": "\ud800"}),
        "naive": Query(start=datetime(2026, 3, 1)),  # noqa: DTZ001
        "backwards": Query(start=noon, end=noon - timedelta(1)),
        "limit": Query(limit=0),
        "cursor": Query(cursor="?"),
        "cursor text": Query(cursor="ünïcode"),
        "cursor of another view": Query(cursor=other_view),
        "cursor of a total": Query(cursor=encode_cursor(REVENUE, ("m", "EUR"), None)),
        "cursor with a number": Query(cursor=encode_cursor(REVENUE, (1, "EUR"), FIRST_DAY)),  # type: ignore[arg-type]
        "cursor far away": Query(cursor=encode_cursor(REVENUE, ("m", "EUR"), 10**30)),
        "year 1": Query(start=datetime.fromisoformat("0001-01-01T00:00:00+14:00")),
    }
    for query in questions.values():
        with pytest.raises(BadRequest):
            read.read(conn, LINE, REVENUE, query)
    with pytest.raises(BadRequest, match="merchant_id, currency"):
        read.read(conn, LINE, REVENUE, questions["field"])
    for manifest in (9, -1, 10**30):
        with pytest.raises(UnknownManifest):
            read.read(conn, LINE, REVENUE, Query(as_of=ManifestId(manifest)))


def test_a_line_that_is_not_there_is_named(conn: Connection) -> None:
    with pytest.raises(UnknownLine, match="other"):
        read.read(conn, "other", REVENUE, Query())
    with pytest.raises(UnknownLine):
        epochs.take_over(conn, "other")
    with pytest.raises(BadRequest):
        read.read(conn, 'x"; DROP SCHEMA line_main', REVENUE, Query())


@pytest.mark.parametrize("view", ALL_VIEWS, ids=lambda view: view.name)
def test_the_sql_view_shows_the_rows_of_the_read(view: View, conn: Connection, both_sides: Tape) -> None:
    answer = read.read(conn, LINE, view, Query())
    found = conn.execute(f"SELECT * FROM seam.{view.name} ORDER BY {', '.join((*view.key, 'window_start'))}")
    names = [column.name for column in found.description or ()]
    in_sql = [dict(zip(names, row, strict=True)) for row in found]
    assert [
        {
            name: value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, datetime) else value
            for name, value in row.items()
            if name in answer.rows[0]
        }
        for row in in_sql
    ] == answer.rows
    assert {(row["manifest"], str(row["cut"]), str(row["frontier"])) for row in in_sql} == {
        (answer.provenance.manifest, str(answer.provenance.cut.to_json()), str(answer.provenance.frontier.to_json()))
    }
    assert sum(row["from_batch"] for row in in_sql) == answer.provenance.from_batch
    assert sum(row["from_speed"] for row in in_sql) == answer.provenance.from_speed


def test_a_view_added_to_a_running_line_is_not_ready_until_a_night_and_then_right(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    speed.commit(OffsetVector.of({0: 5}))
    added = View(
        "kinds", ("currency",), days(1), {"n": Count(), "least": Min("amount_cents"), "most": Max("amount_cents")}, WorkedExample((), ())
    )
    with pytest.raises(ViewNotReady, match="not set up"):
        read.read(conn, LINE, added, Query())
    views = (*ALL_VIEWS, added)
    schema.ensure_views(conn, LINE, views)
    with pytest.raises(ViewNotReady):
        read.read(conn, LINE, added, Query())
    speed = Speed(conn, LINE, tape, views)
    speed.commit(OffsetVector.of({0: 10}))
    with pytest.raises(ViewNotReady):
        read.read(conn, LINE, added, Query())
    night(conn, LINE, tape, views)
    assert rows(read.read(conn, LINE, added, Query())) == shown(added, tape.distinct_below(OffsetVector.of({0: 10})))
    speed.commit(tape.end)
    assert rows(read.read(conn, LINE, added, Query())) == shown(added, tape.distinct_below(tape.end))


def test_two_names_for_one_question_give_the_same_rows(conn: Connection, tape: Tape) -> None:
    twin = View("turnover", REVENUE.key, REVENUE.window, REVENUE.measures, REVENUE.worked_example)
    Speed(conn, LINE, tape, ALL_VIEWS).commit(OffsetVector.of({0: 9}))
    schema.ensure_views(conn, LINE, (*ALL_VIEWS, twin))
    Speed(conn, LINE, tape, (*ALL_VIEWS, twin)).commit(tape.end)
    assert read.read(conn, LINE, twin, Query()).rows == read.read(conn, LINE, REVENUE, Query()).rows
    assert rows(read.read(conn, LINE, twin, Query())) == shown(REVENUE, tape.distinct_below(tape.end))


def test_seam_tells_where_everything_stands(conn: Connection, both_sides: Tape) -> None:
    state = read.seam(conn, LINE)
    assert (state.manifest, state.generation, state.open_generation, state.epoch) == (1, 1, 3, 3)
    assert state.frontier == both_sides.end and state.cut != state.frontier
    counts = state.counts
    assert counts["read"] == OffsetVector().distance_to(both_sides.end)
    assert counts["read"] == counts["counted"] + counts["duplicates"] + counts["quarantined"]
    assert counts["counted"] == len(both_sides.distinct_below(both_sides.end))
    assert state.stale_seconds is not None and 0 <= state.stale_seconds < 60
