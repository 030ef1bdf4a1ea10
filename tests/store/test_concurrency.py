"""Readers beside writers, and writers beside one another."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import psycopg
import pytest

from serving.errors import DiskFull, Fenced, NightlyLocked, StaleFrontier, StoreUnavailable
from serving.store import epochs, generations, manifests, read
from serving.store.database import Connection, connect, one_round_trip, translated
from serving.store.records import ManifestId, Query
from serving.store.vectors import OffsetVector
from tests.store.hand_run import Speed, build, night
from tests.store.tape import Tape, shown
from views.registry import ALL_VIEWS

LINE = "main"


class Poller:
    """Reads without pause and compares every answer with the truth at the frontier it states."""

    def __init__(self, url: str, tape: Tape, seed: int, stop: threading.Event) -> None:
        self.url, self.tape, self.rng, self.stop = url, tape, random.Random(seed), stop
        self.truths: dict[tuple[str, OffsetVector], list[dict[str, object]]] = {}

    def poll(self) -> int:
        answers = 0
        last = OffsetVector()
        with connect(self.url) as conn:
            while not self.stop.is_set() or not answers:
                view = self.rng.choice(ALL_VIEWS)
                answer = read.read(conn, LINE, view, Query())
                frontier = answer.provenance.frontier
                rows = [{name: value for name, value in row.items() if name != "final"} for row in answer.rows]
                if (view.name, frontier) not in self.truths:
                    self.truths[view.name, frontier] = shown(view, self.tape.distinct_below(frontier))
                assert rows == self.truths[view.name, frontier], f"{view.name} is wrong at {answer.provenance}"
                assert answer.provenance.from_batch == len(self.tape.distinct_below(answer.provenance.cut))
                assert frontier.reaches(last), "the frontier never goes back"
                last = frontier
                answers += 1
        return answers


def test_readers_see_only_exact_answers_while_epochs_are_committed_and_manifests_published_rolled_back_and_expired(
    store_url: str, conn: Connection
) -> None:
    rng = random.Random(7)
    tape = Tape(rng)
    tape.produce(600)
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        polls = [pool.submit(Poller(store_url, tape, seed, stop).poll) for seed in (1, 2)]
        try:
            speed = Speed(conn, LINE, tape, ALL_VIEWS)
            for part in range(1, 26):
                speed.commit(OffsetVector.of({p: offset * part // 25 for p, offset in tape.end}))
                published = night(conn, LINE, tape, ALL_VIEWS)
                if part % 3 == 0:
                    manifests.roll_back(conn, LINE, ManifestId(published.manifest - 1))
                if part % 6 == 0:
                    manifests.roll_back(conn, LINE, published.manifest)
                if part % 4 == 0:
                    manifests.expire(conn, LINE, retained=3, horizon=timedelta(days=36500))
        finally:
            stop.set()
        assert sum(poll.result() for poll in polls) >= 50


def both(first: Callable[[], object], second: Callable[[], object]) -> list[object]:
    """Runs two calls at once; what each returned or raised."""
    barrier = threading.Barrier(2)

    def run(call: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(run, call) for call in (first, second)]]


def test_of_two_publishers_one_wins(store_url: str, conn: Connection, tape: Tape) -> None:
    Speed(conn, LINE, tape, ALL_VIEWS).commit(tape.end)
    with connect(store_url) as other:
        first = build(other, LINE, tape, ALL_VIEWS)
        other.execute("SELECT pg_advisory_unlock_all()")  # its session was lost, and it lives on
        second = build(conn, LINE, tape, ALL_VIEWS)
        results = both(lambda: manifests.publish(other, LINE, first), lambda: manifests.publish(conn, LINE, second))
    assert sorted(isinstance(result, NightlyLocked) for result in results) == [False, True]
    assert [manifest.manifest for manifest in manifests.list_manifests(conn, LINE)] == [0, 1]


def test_a_second_run_is_refused_while_the_first_lives(store_url: str, conn: Connection) -> None:
    run = manifests.begin_run(conn, LINE)
    with connect(store_url) as other:
        with pytest.raises(NightlyLocked, match="Another run"):
            manifests.begin_run(other, LINE)
        manifests.end_run(conn, LINE, run.run)
        assert manifests.begin_run(other, LINE).base.manifest == 0


def test_of_two_commits_of_one_epoch_one_counts(store_url: str, conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    epoch, counted = speed.plan(tape.end)
    with connect(store_url) as other:
        results = both(
            lambda: epochs.commit_epoch(other, LINE, speed.token, epoch, ALL_VIEWS),
            lambda: epochs.commit_epoch(conn, LINE, speed.token, epoch, ALL_VIEWS),
        )
    assert sorted(isinstance(result, StaleFrontier) for result in results) == [False, True]
    assert read.read(conn, LINE, ALL_VIEWS[0], Query(total=True)).rows[0]["transactions"] == len(counted)


def test_an_epoch_is_never_split_by_a_seal_beside_it(store_url: str, conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    with connect(store_url) as other:
        for part in range(1, 11):
            until = OffsetVector.of({p: offset * part // 10 for p, offset in tape.end})
            for result in both(lambda until=until: speed.commit(until), lambda: generations.seal(other, LINE)):
                assert not isinstance(result, Exception), result
            listed = generations.list_generations(conn, LINE)
            assert all(a.cut == b.start for a, b in pairwise(listed))
            answer = read.read(conn, LINE, ALL_VIEWS[0], Query(total=True))
            assert answer.provenance.from_speed == len(tape.distinct_below(until)) and answer.provenance.frontier == until


def test_who_takes_over_fences_the_writer_before(store_url: str, conn: Connection, tape: Tape) -> None:
    old = Speed(conn, LINE, tape, ALL_VIEWS)
    with connect(store_url) as other:
        new = Speed(other, LINE, tape, ALL_VIEWS)
        for attempt in (
            lambda: old.commit(tape.end),
            lambda: epochs.store_source_position(conn, LINE, old.token, tape.end),
            lambda: epochs.sign_of_life(conn, LINE, old.token),
        ):
            with pytest.raises(Fenced):
                attempt()
        assert new.commit(tape.end) == 1


def test_a_stopped_writer_loses_its_lock_and_the_next_one_takes_over(store_url: str, conn: Connection) -> None:
    stopped = connect(store_url)
    stopped.execute("SET idle_in_transaction_session_timeout = 300")
    stopped.execute("BEGIN")
    stopped.execute("SELECT FROM line_main.frontier FOR UPDATE")
    epochs.take_over(conn, LINE)
    with pytest.raises(StoreUnavailable):
        epochs.read_frontier(stopped, LINE)
    stopped.close()


def test_a_writer_that_stopped_while_sending_loses_its_lock_too(store_url: str, conn: Connection) -> None:
    stopped = connect(store_url)
    raw = stopped.pgconn
    raw.enter_pipeline_mode()
    raw.send_query_params(b"BEGIN", None)
    raw.send_query_params(b"SET LOCAL transaction_timeout = 500", None)
    raw.send_query_params(b"SELECT FROM line_main.frontier FOR UPDATE", None)
    raw.send_flush_request()
    raw.flush()  # … and no end of the pipeline: to the server this session is not idle
    locked = "SELECT count(*) FROM pg_locks WHERE pid = %s AND relation = 'line_main.frontier'::regclass"
    deadline = time.monotonic() + 20
    while conn.execute(locked, (stopped.info.backend_pid,)).fetchone() == (0,):
        assert time.monotonic() < deadline
    epochs.take_over(conn, LINE)
    stopped.close()


def test_every_connection_has_limits_on_waiting(conn: Connection) -> None:
    names = ("lock_timeout", "idle_in_transaction_session_timeout")
    assert [conn.execute(f"SHOW {name}").fetchone() for name in names] == [("65s",), ("10s",)]
    with one_round_trip(conn):
        sending = conn.execute("SHOW transaction_timeout")
    assert sending.fetchone() == ("1min",)


def test_a_lost_connection_is_a_retryable_error(store_url: str, conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    with psycopg.connect(store_url, autocommit=True) as killer:
        killer.execute("SELECT pg_terminate_backend(%s)", (conn.info.backend_pid,))
    with pytest.raises(StoreUnavailable) as caught:
        speed.commit(tape.end)
    assert caught.value.retryable
    with connect(store_url) as again:
        assert Speed(again, LINE, tape, ALL_VIEWS).commit(tape.end) == 1


def test_a_full_disk_is_named_and_undone(conn: Connection) -> None:
    full = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"
    with pytest.raises(DiskFull, match="No space left"), translated(LINE):
        conn.execute(full)
    assert epochs.read_frontier(conn, LINE).epoch == 0


def test_no_server_is_a_retryable_error() -> None:
    with pytest.raises(StoreUnavailable):
        connect("postgresql://nobody@127.0.0.1:1/nothing")
