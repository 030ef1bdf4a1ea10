"""The commands as a user runs them: a real SIGKILL, then the same night as a flow on a real Prefect server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra import process, stack
from infra.settings import Settings
from serving.store import generations
from tests.batch.hand_fed_line import DAY_ONE, HandFedLine, day_of_events, event

pytestmark = pytest.mark.stack

PREFECT_SECONDS = 120


@pytest.fixture
def line(kafka: Any, topic: str, fresh_database_url: str, home: Path) -> Iterator[HandFedLine]:
    fed = HandFedLine(kafka.bootstrap, topic, fresh_database_url, home, spark=None)
    yield fed
    fed.close()


@pytest.fixture
def prefect_api_url(home: Path) -> Iterator[str]:
    settings = Settings(home=home)
    server = stack.start_prefect(settings)
    url = stack.prefect_address(settings)
    deadline = time.monotonic() + PREFECT_SECONDS
    try:
        while not answers(f"{url}/health"):
            assert time.monotonic() < deadline, stack.log_file(settings, "prefect").read_text()
            time.sleep(0.5)
        yield url
    finally:
        process.stop(settings.run_folder, server, 20)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).is_success
    except httpx.HTTPError:
        return False


def seam(line: HandFedLine, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    ours = {"HOME": str(line.settings.home), "KAFKA_BOOTSTRAP": line.bootstrap, "DATABASE_URL": line.url, "TOPIC": line.topic, **settings}
    environment = {**os.environ, **{f"SEAM_{name}": value for name, value in ours.items()}}
    command = [sys.executable, "-m", "flows.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)


def test_a_night_that_was_killed_is_put_right_by_the_flow_on_a_prefect_server(line: HandFedLine, prefect_api_url: str) -> None:
    line.send(day_of_events(0, 100, DAY_ONE))
    line.speed()
    killed = seam(line, "nightly", "--without-prefect", CRASH_AT="mid_load:2")
    assert killed.returncode == -9, killed.stderr
    assert line.current() == 0 and len(generations.list_generations(line.connection, "main")) == 3
    line.assert_exact()
    line.send([(2, event(500, DAY_ONE)), (3, event(1, DAY_ONE))])
    line.speed()
    done = seam(line, "nightly", "--json", PREFECT_API_URL=prefect_api_url)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    truth = line.truth().total
    assert (report["manifest"], report["generation"], report["published"], report["ingested"]) == (1, 2, True, 2)
    assert (report["deliveries"], report["counted"], report["duplicates"]) == (truth.read, truth.counted, truth.duplicates)
    line.assert_exact()
    runs = httpx.post(f"{prefect_api_url}/flow_runs/filter", json={}).json()
    assert [run["state_type"] for run in runs] == ["COMPLETED"]
    tasks = httpx.post(f"{prefect_api_url}/task_runs/filter", json={}).json()
    assert sorted(task["name"].rpartition("-")[0] for task in tasks) == sorted(
        ["seal", "ingest", "recompute", "check", "load", "publish", "expire"]
    )
    planned = seam(line, "nightly", "--dry-run", "--json")
    assert {step["name"]: step["does"] for step in json.loads(planned.stdout)}["publish"] == "nothing: manifest 1 is up to date"


def test_a_prefect_server_that_does_not_answer_is_one_clear_line(line: HandFedLine) -> None:
    done = seam(line, "nightly", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert done.returncode == 1
    assert done.stderr.startswith("StackFault: The Prefect server at http://127.0.0.1:9/api does not answer")
    assert "seam nightly --without-prefect" in done.stderr and done.stdout == ""
