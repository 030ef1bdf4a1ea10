"""What a reader gets while the line moves, has a hole, or the database is away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import psycopg
import pytest

from infra.postgres import Postgres
from infra.settings import load_settings
from serving.client import Seam
from serving.errors import SeamError, SeamGap, StoreUnavailable, ViewNotReady
from serving.store import schema
from tests.serving.served_api import Api, poll, running_api
from tests.serving.served_tape import LINE, Tape, naive_rows, random_events, without_final
from views.measures import Count
from views.registry import ALL_VIEWS, view_named
from views.view import View, WorkedExample

BY_CURRENCY = View("by_currency", ("currency",), ALL_VIEWS[0].window, {"transactions": Count()}, WorkedExample((), ()))


def test_a_view_that_is_not_counted_yet_is_503_and_then_right(tape: Tape, tmp_path: Path) -> None:
    views = (*ALL_VIEWS, BY_CURRENCY)
    schema.ensure_views(tape.conn, LINE, views)
    with running_api(tape.url, tmp_path / "s", views) as api:
        answer = api.get("/v1/views/by_currency")
        assert answer.status_code == 503 and answer.headers["retry-after"].isdigit()
        assert answer.json()["code"] == "ViewNotReady" and answer.json()["fix"] == "seam nightly"
        waits: list[float] = []
        with Seam(api.url, api.key, retries=2, sleep=waits.append) as seam, pytest.raises(ViewNotReady):
            seam.query("by_currency")
        assert len(waits) == 2
        tape.views = views
        tape.publish()
        tape.commit(random_events(8, 40, first=700))
        assert without_final(api.get("/v1/views/by_currency").json()["rows"]) == naive_rows(BY_CURRENCY, tape.events)


def test_a_hole_between_seam_and_frontier_is_an_error_not_a_smaller_number(tape: Tape, api: Api) -> None:
    with psycopg.connect(tape.url, autocommit=True) as conn:
        conn.execute("UPDATE line_main.generations SET start = '{\"0\": 501}' WHERE generation = 2")
    answer = api.get("/v1/views/system_usage")
    assert answer.status_code == 503 and answer.json()["code"] == "SeamGap" and "retry-after" not in answer.headers
    with Seam(api.url, api.key) as seam, pytest.raises(SeamGap):
        seam.query("system_usage")


def test_a_line_that_is_not_made_yet_is_503(fresh_database_url: str, tmp_path: Path) -> None:
    with running_api(fresh_database_url, tmp_path / "s") as api:
        answer = api.get("/v1/views/system_usage")
        assert answer.status_code == 503 and "line_main" not in answer.text
        assert api.get("/v1/seam").status_code == api.get("/v1/manifests").status_code == 503
        assert "seam_store_up 0" in api.get("/metrics").text


def test_every_answer_is_exact_at_its_own_frontier_while_epochs_commit_and_manifests_publish(tape: Tape, api: Api) -> None:
    view = view_named("revenue_by_merchant")
    assert view is not None
    whole = [*tape.events, *random_events(9, 400, first=700)]
    answers, failures, done = [], [], Flag()

    def ask() -> None:
        with Seam(api.url, api.key, retries=0) as seam:
            while not done.is_set():
                try:
                    answers.append(seam.query("revenue_by_merchant", key={"merchant_id": "m-1"}, limit=10_000))
                except SeamError as error:
                    failures.append(error)

    askers = [Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for turn, first in enumerate(range(700, 1100, 50)):
        tape.commit(whole[first : first + 50])
        if turn % 2:
            tape.publish()
        if turn == 5:
            Seam(api.url, api.admin_key).publish(1)
            Seam(api.url, api.admin_key).publish(2)
            Seam(api.url, api.admin_key).publish(max(m["id"] for m in Seam(api.url, api.key).manifests()))
    done.set()
    for asker in askers:
        asker.join(20)
    assert not failures
    assert len({answer.provenance.manifest for answer in answers}) >= 2
    expected: dict[int, list[dict[str, object]]] = {}
    for answer in answers:
        frontier = answer.provenance.frontier[0]
        if frontier not in expected:
            expected[frontier] = naive_rows(view, [event for event in whole[:frontier] if event.merchant_id == "m-1"])
        assert without_final(answer.rows) == expected[frontier]  # type: ignore[arg-type]
        assert answer.provenance.from_batch + answer.provenance.from_speed == sum(row["transactions"] for row in expected[frontier])  # type: ignore[misc]


def test_pages_taken_across_a_publish_together_hold_every_event_once(tape: Tape, api: Api) -> None:
    with Seam(api.url, api.key) as seam:
        before = list(seam.rows("account_activity"))
        pages = seam.pages("account_activity", limit=4)
        rows = list(next(pages).rows)
        tape.publish()
        rows += [row for page in pages for row in page.rows]
    assert without_final(rows) == without_final(before)  # type: ignore[arg-type]


@pytest.fixture
def own_postgres(home: Path) -> Iterator[Postgres]:
    postgres = Postgres.of(load_settings(home=home))
    postgres.start()
    yield postgres
    postgres.stop()


def test_a_killed_database_is_503_and_recovers_by_itself(own_postgres: Postgres, tmp_path: Path) -> None:
    tape = Tape(own_postgres.url)
    tape.commit(random_events(1, 50))
    with running_api(own_postgres.url, tmp_path / "s") as api, Seam(api.url, api.key, retries=0) as seam:
        before = list(seam.rows("system_usage"))
        seam.seam()
        tape.close()
        running = own_postgres.running()
        assert running is not None
        os.kill(running.pid, signal.SIGQUIT)  # immediate shutdown: every connection is cut, as in a crash
        poll(lambda: not running.alive())
        answer = api.get("/v1/views/system_usage")
        assert answer.status_code == 503 and answer.headers["retry-after"].isdigit()
        assert answer.json()["code"] == "StoreUnavailable" and str(own_postgres.port) not in answer.text
        with pytest.raises(StoreUnavailable):
            seam.seam()
        poll(lambda: api.send("GET", "/healthz").status_code == 503)
        assert "seam_store_up 0" in api.get("/metrics").text
        own_postgres.start()
        assert list(seam.rows("system_usage")) == before
        assert seam.seam()["frontier"] == {"0": 50}
        poll(lambda: api.send("GET", "/healthz").status_code == 200)


def test_a_hanging_database_does_not_hang_the_reader(own_postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.api.pool._WAIT_FOR_ROWS_SECONDS", 0.5)
    tape = Tape(own_postgres.url)
    tape.commit(random_events(1, 50))
    with running_api(own_postgres.url, tmp_path / "s") as api, psycopg.connect(own_postgres.url) as other:
        assert api.get("/v1/views/system_usage").status_code == 200
        other.execute("LOCK TABLE line_main.pointer")
        answer = api.get("/v1/views/system_usage")
        assert answer.status_code == 503 and answer.json()["code"] == "StoreUnavailable"
        other.rollback()
        assert api.get("/v1/views/system_usage").status_code == 200
    tape.close()


def test_the_client_says_when_nobody_listens() -> None:
    with Seam("http://127.0.0.1:1", "k" * 40) as seam, pytest.raises(StoreUnavailable, match="does not answer"):
        seam.views()


def test_seam_and_metrics_tell_where_the_line_is(read_tape: Tape, read_api: Api) -> None:
    with Seam(read_api.url, read_api.key) as seam:
        state = seam.seam()
    assert (state["manifest"], state["cut"], state["frontier"]) == (1, {"0": 500}, {"0": 700})
    assert state["counts"]["counted"] == 700
    lines = read_api.get("/metrics").text.splitlines()
    assert 'seam_frontier_offset{partition="0"} 700' in lines and "seam_manifest 1" in lines
    assert any(line.startswith('seam_http_requests_total{method="GET",route="/v1/seam",status="200"}') for line in lines)


def test_the_document_describes_every_view_with_its_own_parameters(read_api: Api) -> None:
    document = read_api.get("/openapi.json").json()
    for view in ALL_VIEWS:
        operation = document["paths"][f"/v1/views/{view.name}"]["get"]
        assert {p["name"] for p in operation["parameters"]} == {*view.key, "from", "to", "total", "as_of", "limit", "cursor"}
    assert {v["name"] for v in read_api.get("/v1/views").json()} == {view.name for view in ALL_VIEWS}
    assert replace(ALL_VIEWS[0]).fingerprint == read_api.get("/v1/views").json()[0]["fingerprint"]
