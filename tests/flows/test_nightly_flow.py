"""The nightly flow on a real Prefect server: its steps are tasks there, and a failed step is tried again only where that may help."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra import process, stack
from infra.settings import load_settings
from serving.store import database, manifests
from tests.batch.hand_fed_line import HandFedLine
from tests.conftest import Kafka
from tests.speed.speed_line import PROJECT, SpeedLine, event, wait_until

pytestmark = pytest.mark.stack
STEPS = ["seal", "ingest", "recompute", "check", "load", "publish", "expire"]


@pytest.fixture
def prefect(home: Path) -> Iterator[str]:
    """A Prefect server of its own; its API's address."""
    settings = load_settings(home=home / "prefect-home")
    settings.run_folder.mkdir(parents=True)
    server = stack.start_prefect(settings)
    try:
        url = stack.prefect_address(settings)
        wait_until(lambda: _answers(url), 120)
        yield url
    finally:
        process.stop(settings.run_folder, server, 20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).is_success
    except httpx.HTTPError:
        return False


def _oldest_first(url: str, what: str) -> list[dict[str, Any]]:
    found = httpx.post(f"{url}/{what}/filter", json={"sort": "EXPECTED_START_TIME_ASC"}, timeout=10)
    found.raise_for_status()
    runs: list[dict[str, Any]] = found.json()
    return runs


@pytest.mark.timeout(400)
def test_a_night_through_prefect_publishes_and_shows_its_steps_as_tasks(
    home: Path, kafka: Kafka, topic: str, fresh_database_url: str, prefect: str
) -> None:
    line = HandFedLine(kafka.bootstrap, topic, fresh_database_url, home, None)
    line.send((number % 4, event(number)) for number in range(100))
    line.speed()
    line.close()
    services = {"SEAM_KAFKA_BOOTSTRAP": kafka.bootstrap, "SEAM_DATABASE_URL": fresh_database_url, "SEAM_TOPIC": topic}
    environment = {**os.environ, **services, "SEAM_HOME": str(home), "SEAM_PREFECT_API_URL": prefect, "SEAM_SPARK_MASTER": "local[2]"}
    command = [sys.executable, "-m", "flows.cli", "nightly", "--json"]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    flow_runs = _oldest_first(prefect, "flow_runs")
    assert [run["state_name"] for run in flow_runs] == ["Completed"]
    tasks = _oldest_first(prefect, "task_runs")
    assert [task["name"].rpartition("-")[0] for task in tasks] == STEPS
    assert {task["state_name"] for task in tasks} == {"Completed"}
    with closing(database.connect(fresh_database_url)) as connection:
        assert manifests.current(connection, "main")[0].manifest == 1
    assert SpeedLine.of(home, kafka.bootstrap, fresh_database_url, topic).audited().exact
