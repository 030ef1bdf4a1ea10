from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from infra import process
from infra.disk import require_space
from infra.postgres import Postgres
from infra.settings import Settings
from serving.errors import DiskFull, StackFault


@pytest.fixture
def server(settings_for: Callable[..., Settings]) -> Iterator[Postgres]:
    server = Postgres.of(settings_for())
    yield server
    server.stop()


def count(server: Postgres) -> int:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT count(*) FROM t").fetchone()
    assert row is not None
    return int(row[0])


def started_with_rows(server: Postgres) -> process.Running:
    running = server.start()
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t AS SELECT generate_series(1, 1000) AS x")
    return running


def kill(running: process.Running) -> None:
    os.kill(running.pid, signal.SIGKILL)
    assert process.wait_until(lambda: not running.alive(), 10)


def test_data_survives_a_stop_and_a_kill(server: Postgres) -> None:
    running = started_with_rows(server)
    assert server.start() == running, "a second start finds the first"
    process.forget(server.run_folder, "postgres")
    assert server.start() == running, "also if its starter died before recording it"
    assert server.stop() is True
    assert not server.healthy()
    kill(server.start())
    assert server.running() is None
    server.start()
    assert count(server) == 1000


def test_a_pid_file_that_names_a_stranger_does_not_keep_it_from_starting(server: Postgres) -> None:
    kill(started_with_rows(server))
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        pid_file = server.folder / "postmaster.pid"
        pid_file.write_text("\n".join([str(stranger.pid), *pid_file.read_text().splitlines()[1:]]) + "\n")
        server.start()
        assert count(server) == 1000
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_first_start_that_died_half_way_is_done_again(server: Postgres) -> None:
    (server.home / "postgres" / "data.new").mkdir(parents=True)
    (server.home / "postgres" / "data.new" / "half").write_text("")
    server.start()
    assert server.healthy()


def test_the_password_is_needed_and_only_the_owner_can_read_it(server: Postgres) -> None:
    server.start()
    assert stat.S_IMODE(server.password_file.stat().st_mode) == 0o600
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://seam@127.0.0.1:{server.port}/seam")


def test_commits_are_durable_and_text_orders_by_code_point(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        shown = [connection.execute(f"SHOW {name}").fetchone() for name in ("synchronous_commit", "fsync", "full_page_writes")]
        assert shown == [("on",)] * 3
        assert connection.execute("SELECT array_agg(x ORDER BY x) FROM unnest(ARRAY['b', 'B', 'a', 'ä']) x").fetchone() == (
            ["B", "a", "b", "ä"],
        )


def test_a_taken_port_is_said_and_nothing_is_made(server: Postgres) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", server.port))
        other.listen()
        with pytest.raises(StackFault, match=f"Port {server.port} of the embedded PostgreSQL is taken"):
            server.start()
    assert not server.folder.exists()


def test_too_little_room_is_said_before_anything_is_made(home: Path) -> None:
    with pytest.raises(DiskFull, match=r"MB free, \d+ MB are needed.*SEAM_HOME"):
        require_space(home / "not" / "yet", 1 << 40)
    assert list(home.iterdir()) == []


@pytest.fixture
def small_disk(home: Path) -> Iterator[Path]:
    """A disk of 24 MB: a new database takes about 40."""
    disk = home / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("NOT TESTED: a full disk needs the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_named_and_leaves_no_half_made_database(small_disk: Path, settings_for: Callable[..., Settings]) -> None:
    server = Postgres.of(settings_for(home=small_disk))
    with pytest.raises(DiskFull, match="No space left"):
        server.start()
    assert not server.folder.exists()
    assert server.running() is None
    assert shutil.disk_usage(small_disk).free > 1 << 20, "what was begun is cleared"
