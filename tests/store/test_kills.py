"""SIGKILL at every statement of every write: what a reader sees is the old answer or the new one, and the next run works."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from serving.store import epochs, generations, manifests, read, schema
from serving.store.arrays import register_arrays
from serving.store.database import Connection, connect
from serving.store.records import Answer, LineInfo, ManifestId, Query
from serving.store.vectors import OffsetVector
from tests.store.hand_run import Speed, night
from tests.store.tape import Tape
from views.registry import ALL_VIEWS

LINE = "main"


class DyingConnection(psycopg.Connection[Any]):
    """Each statement reaches the server on its own; after the last allowed one the process is gone."""

    allowed = 0

    def pipeline(self) -> Any:
        return nullcontext()

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        done = super().execute(*args, **kwargs)
        type(self).allowed -= 1
        if type(self).allowed == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done


def die_at(url: str, statements: int, work: Callable[[Connection], object]) -> bool:
    """Runs `work` in a process of its own that is killed after that many statements; False if it came to its end first."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            DyingConnection.allowed = statements
            conn = DyingConnection.connect(url, autocommit=True)
            register_arrays(conn)
            work(conn)
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended):
        return True
    assert os.WEXITSTATUS(ended) == 0, "the work itself failed"
    return False


def answers(conn: Connection) -> list[Answer]:
    return [read.read(conn, LINE, view, Query()) for view in ALL_VIEWS]


def stated(conn: Connection) -> list[object]:
    """All that an answer says, but for its age."""
    return [(a.rows, a.provenance.manifest, a.provenance.cut, a.provenance.frontier, a.provenance.from_speed) for a in answers(conn)]


def numbers(conn: Connection) -> list[list[dict[str, object]]]:
    """The rows without what may change when nothing is counted: whether they are final."""
    return [[{name: value for name, value in row.items() if name != "final"} for row in a.rows] for a in answers(conn)]


def kills(url: str, conn: Connection, work: Callable[[Connection], object]) -> int:
    """Kills `work` after 1, 2, 3 … statements until it comes to its end; until it commits, answers stay as they were."""
    before = stated(conn)
    for statements in range(1, 300):
        killed = die_at(url, statements, work)
        wait_until_alone(conn)
        if not killed or stated(conn) != before:
            return statements
    raise AssertionError("never came to an end")


def wait_until_alone(conn: Connection) -> None:
    """The locks of a killed process are freed when the server notices that it is gone."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    deadline = time.monotonic() + 20
    while conn.execute(others).fetchone() != (0,):
        assert time.monotonic() < deadline, "a killed process still has a session"


def test_a_killed_commit_leaves_nothing_and_the_next_one_counts_everything(store_url: str, conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    epoch, counted = speed.plan(tape.end)
    steps = kills(store_url, conn, lambda c: epochs.commit_epoch(c, LINE, speed.token, epoch, ALL_VIEWS))
    assert steps >= 9
    assert read.read(conn, LINE, ALL_VIEWS[0], Query(total=True)).rows[0]["transactions"] == len(counted)
    assert epochs.read_frontier(conn, LINE).epoch == 1


def test_a_killed_night_changes_nothing_until_the_pointer_moves(store_url: str, conn: Connection, tape: Tape) -> None:
    Speed(conn, LINE, tape, ALL_VIEWS).commit(tape.end)
    truth = numbers(conn)
    assert kills(store_url, conn, lambda c: night(c, LINE, tape, ALL_VIEWS)) > 20
    assert numbers(conn) == truth
    assert manifests.current(conn, LINE)[0].manifest == 1
    manifests.expire(conn, LINE, retained=1, horizon=timedelta(0))
    named = set(manifests.current(conn, LINE)[0].segments.values())
    assert {segment.segment for segment in manifests.list_segments(conn, LINE)} == named, "what the killed nights loaded is gone"
    assert numbers(conn) == truth


@pytest.mark.parametrize("write", ["seal", "roll_back", "expire"])
def test_a_killed_operation_changes_no_number(write: str, store_url: str, conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    speed.commit(tape.end)
    night(conn, LINE, tape, ALL_VIEWS)
    tape.produce(30)
    speed.commit(tape.end)
    work: dict[str, Callable[[Connection], object]] = {
        "seal": lambda c: generations.seal(c, LINE),
        "roll_back": lambda c: manifests.roll_back(c, LINE, ManifestId(0)),
        "expire": lambda c: manifests.expire(c, LINE, retained=1, horizon=timedelta(0)),
    }
    truth = numbers(conn)
    assert kills(store_url, conn, work[write]) > 1
    assert numbers(conn) == truth


def test_a_killed_set_up_is_made_whole_by_the_next(store_url: str) -> None:
    info = LineInfo(LINE, "transactions", "topic-1", OffsetVector())
    for statements in (1, 4, 7, 9, 12, 15):
        die_at(store_url, statements, lambda c: schema.create_line(c, info, ALL_VIEWS))
    with connect(store_url) as conn:
        assert schema.create_line(conn, info, ALL_VIEWS) == info
        assert read.read(conn, LINE, ALL_VIEWS[0], Query()).rows == []
