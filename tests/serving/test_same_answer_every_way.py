"""HTTP, the client, SQL and the store itself give the same rows, and they are those of a naive fold."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter

import psycopg
import pytest
from psycopg.rows import dict_row

from serving.client import Seam
from serving.store import database, read
from serving.store.records import Query
from tests.serving.served_api import Api
from tests.serving.served_tape import LINE, NOON, Tape, naive_rows, shown_instant, without_final
from views.registry import ALL_VIEWS
from views.view import View


def sql_rows(url: str, view: View) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    order = ", ".join((*view.key, "window_start"))
    with psycopg.connect(url, row_factory=dict_row, options="-c timezone=UTC") as conn:
        found = conn.execute(f"SELECT * FROM seam.{view.name} ORDER BY {order}").fetchall()  # type: ignore[call-overload]
    rows = []
    for row in found:
        shown = {name: row[name] for name in view.key}
        shown |= {name: shown_instant(row[name]) for name in ("window_start", "window_end")}
        shown |= {name: int(row[name]) for name in (*view.measures, "id_checksum")}
        rows.append(shown | {"final": row["final"]})
    return rows, found


def known(provenance: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in provenance.items() if name != "stale_seconds"}


@pytest.mark.parametrize("view", ALL_VIEWS, ids=attrgetter("name"))
def test_every_way_of_asking_gives_the_rows_of_a_naive_fold(view: View, read_tape: Tape, read_api: Api) -> None:
    response = read_api.get(f"/v1/views/{view.name}")
    assert response.headers["content-type"] == "application/json" and response.headers["cache-control"] == "no-store"
    over_http = response.json()
    with Seam(read_api.url, read_api.key) as seam:
        by_client = seam.query(view.name)
    with database.connect(read_tape.url) as conn:
        direct = read.read(conn, LINE, view, Query()).to_json()
    by_sql, with_provenance = sql_rows(read_tape.url, view)
    assert without_final(over_http["rows"]) == naive_rows(view, read_tape.events)
    assert over_http["rows"] == list(by_client.rows) == direct["rows"] == by_sql
    assert known(over_http["provenance"]) == known(by_client.provenance.to_json()) == known(direct["provenance"])  # type: ignore[arg-type]
    assert over_http["provenance"]["manifest"] == 1
    assert over_http["provenance"]["cut"] == {"0": 500} and over_http["provenance"]["frontier"] == {"0": 700}
    assert (over_http["provenance"]["from_batch"], over_http["provenance"]["from_speed"]) == (500, 200)
    assert sum(row["from_batch"] for row in with_provenance) == 500  # type: ignore[misc]
    assert {row["manifest"] for row in with_provenance} == {1}


def test_key_and_range_select_what_a_naive_filter_selects(read_tape: Tape, read_api: Api) -> None:
    view = next(view for view in ALL_VIEWS if view.name == "revenue_by_merchant")
    start, end = NOON + timedelta(minutes=10), NOON + timedelta(minutes=40)
    answer = read_api.get(
        "/v1/views/revenue_by_merchant", merchant_id="m-1", currency="EUR", **{"from": start.isoformat(), "to": "2026-03-01T13:40:00+01:00"}
    )
    wanted = [
        event for event in read_tape.events if event.merchant_id == "m-1" and event.currency == "EUR" and start <= event.event_time < end
    ]
    assert without_final(answer.json()["rows"]) == naive_rows(view, wanted)


def test_a_total_is_the_sum_of_its_rows(read_tape: Tape, read_api: Api) -> None:
    total = read_api.get("/v1/views/account_activity", account_id="a-1", currency="EUR", total="true").json()
    of_account = [event for event in read_tape.events if event.account_id == "a-1" and event.currency == "EUR"]
    (row,) = total["rows"]
    assert row["transactions"] == len(of_account)
    assert row["amount_cents"] == sum(event.amount_cents for event in of_account)
    assert row["largest_cents"] == max(event.amount_cents for event in of_account)
    assert total["provenance"]["from_batch"] + total["provenance"]["from_speed"] == len(of_account)


def test_as_of_a_manifest_gives_the_rows_at_its_cut(read_tape: Tape, read_api: Api) -> None:
    with Seam(read_api.url, read_api.key) as seam:
        answer = seam.query("system_usage", as_of=1)
        nothing = seam.query("system_usage", as_of=0)
    view = next(view for view in ALL_VIEWS if view.name == "system_usage")
    assert without_final(answer.rows) == naive_rows(view, read_tape.events[:500])  # type: ignore[arg-type]
    assert answer.provenance.frontier == answer.provenance.cut and answer.provenance.from_speed == 0
    assert list(nothing.rows) == []


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_together_are_one_read(limit: int, read_tape: Tape, read_api: Api) -> None:
    with Seam(read_api.url, read_api.key) as seam:
        whole = list(seam.query("revenue_by_merchant", limit=10_000).rows)
        pages = list(seam.pages("revenue_by_merchant", key={"merchant_id": "m-2"}, limit=limit))
        by_key = [row for row in whole if row["merchant_id"] == "m-2"]
        assert [row for page in pages for row in page.rows] == by_key
        assert all(len(page.rows) == limit for page in pages[:-1]) and pages[-1].next is None
        assert sum(page.provenance.from_batch + page.provenance.from_speed for page in pages) == sum(row["transactions"] for row in by_key)  # type: ignore[misc]
        if limit > 1:
            assert list(seam.rows("revenue_by_merchant", limit=limit)) == whole


def test_sums_beyond_64_bits_arrive_whole(tape: Tape, api: Api) -> None:
    view = next(view for view in ALL_VIEWS if view.name == "account_activity")
    with psycopg.connect(tape.url, autocommit=True) as conn:
        conn.execute(f"UPDATE line_main.batch_{view.fingerprint} SET amount_cents = 10::numeric ^ 25")  # type: ignore[arg-type]
    with Seam(api.url, api.key) as seam:
        (row, *_) = seam.rows("account_activity", as_of=1)
    assert row["amount_cents"] == 10**25
