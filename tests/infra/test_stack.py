"""`seam up`, `down` and `status` as a user calls them, on a home of their own."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from infra.process import Running, birth_of, recorded, wait_until
from infra.settings import load_settings
from infra.stack import endpoints, exclusive
from serving.errors import StackFault
from tests.infra.test_command_line import PROJECT, seam

pytestmark = pytest.mark.stack

FIELDS = {"kafka", "database", "api", "processes", "frontier", "log_end", "seam", "manifest", "lag_offsets", "caught_up"}


@pytest.fixture
def up_home(home: Path) -> Iterator[Path]:
    yield home
    seam("down", home=home)


def status(home: Path) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(seam("status", "--json", home=home).stdout)
    return shown


def up(home: Path, *words: str) -> dict[str, Any]:
    done = seam("up", *words, "--json", home=home)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def kill(home: Path, part: str) -> None:
    running = recorded(home / "run", part)
    assert isinstance(running, Running)
    os.kill(running.pid, signal.SIGKILL)
    assert wait_until(lambda: birth_of(running.pid) != running.birth, 10)


def test_the_embedded_parts_come_up_once_go_down_in_order_and_come_back_with_their_data(up_home: Path) -> None:
    first = up(up_home, "--only", "kafka,postgres")
    assert set(first) >= FIELDS
    assert set(first["processes"]) == {"kafka", "postgres"}
    assert (first["manifest"], first["lag_offsets"], first["caught_up"]) == (0, 0, True)
    assert up(up_home, "--only", "kafka,postgres")["processes"] == first["processes"], "a second up starts nothing"

    for name in ("api.key", "admin.key", "database_password"):
        file = up_home / "secrets" / name
        assert (stat.S_IMODE(file.stat().st_mode), len(file.read_text().strip())) == (0o600, 43)
    keys = [(up_home / "secrets" / name).read_text() for name in ("api.key", "admin.key")]
    assert keys[0] != keys[1]

    with psycopg.connect(first["database"]["url"]) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
    down = seam("down", home=up_home)
    assert [line.split(":")[0] for line in down.stderr.splitlines()] == ["kafka", "postgres"]
    assert status(up_home)["processes"] == {}
    assert seam("down", home=up_home).returncode == 0
    with pytest.raises(StackFault, match=r"not running.*seam up"):
        endpoints(load_settings(home=up_home))

    again = up(up_home, "--only", "kafka,postgres")
    assert (again["kafka"], again["database"]) == (first["kafka"], first["database"]), "addresses are kept"
    assert [(up_home / "secrets" / name).read_text() for name in ("api.key", "admin.key")] == keys
    with psycopg.connect(again["database"]["url"]) as connection:
        assert connection.execute("SELECT one FROM kept").fetchone() == (1,)


def test_a_killed_part_is_missing_from_the_status_and_the_next_up_starts_it(up_home: Path) -> None:
    first = up(up_home, "--only", "postgres")
    kill(up_home, "postgres")
    assert status(up_home)["processes"] == {}
    again = up(up_home, "--only", "postgres")
    assert again["processes"]["postgres"] != first["processes"]["postgres"]


def test_a_home_that_another_up_works_on_is_refused_at_once(up_home: Path) -> None:
    with exclusive(load_settings(home=up_home)):
        for word in ("up", "down"):
            done = seam(word, home=up_home)
            assert done.returncode == 1
            assert f"Another seam up or down works on {up_home} (pid {os.getpid()})" in done.stderr
    assert not (up_home / "kafka").exists()


def test_two_ups_at_once_leave_one_stack(up_home: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "up", "--only", "postgres"]
    environment = {**os.environ, "SEAM_HOME": str(up_home)}
    both = [subprocess.Popen(command, env=environment, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
    said = [one.communicate(timeout=120)[1].decode() for one in both]
    assert sorted(one.returncode for one in both) == [0, 1], said
    assert set(status(up_home)["processes"]) == {"postgres"}


def test_an_up_that_was_killed_half_way_is_continued_by_the_next(up_home: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "up", "--only", "postgres"]
    half = subprocess.Popen(command, env={**os.environ, "SEAM_HOME": str(up_home)}, cwd=PROJECT, stderr=subprocess.DEVNULL)
    assert wait_until(lambda: (up_home / "postgres" / "data.new").exists(), 60, every=0.001)
    half.kill()
    half.wait()
    assert set(up(up_home, "--only", "postgres")["processes"]) == {"postgres"}


def test_the_whole_stack_comes_up_answers_and_goes_down(up_home: Path) -> None:
    shown = up(up_home)
    assert set(shown["processes"]) == {"kafka", "postgres", "prefect", "speed", "api"}
    key = Path(shown["api"]["key_file"]).read_text().strip()
    with httpx.Client(base_url=shown["api"]["url"], headers={"X-API-Key": key}, trust_env=False) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/views").status_code == 200
    assert httpx.get(f"{shown['prefect']['url']}/health", trust_env=False).json() is True
    assert up(up_home)["processes"] == shown["processes"]
    down = seam("down", home=up_home)
    assert [line.split(":")[0] for line in down.stderr.splitlines()] == ["speed", "api", "prefect", "kafka", "postgres"]
    assert "killed" not in down.stderr
