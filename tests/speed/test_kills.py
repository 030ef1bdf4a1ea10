"""`seam speed` as a process of its own, killed at every step, stopped politely, and robbed of its Java process."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from infra.process import birth_of
from tests.conftest import Kafka
from tests.speed.speed_line import SpeedLine, end_of, exit_code, mixed, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

STEPS = (
    "before_lift:2",
    "after_lift:3",
    "before_commit:2",
    "mid_commit:2",
    "after_commit:2",
    "before_source_position:2",
    "after_source_position:2",
)


@pytest.fixture
def line(home: Path, kafka: Kafka, fresh_database_url: str, topic: str) -> SpeedLine:
    return SpeedLine.of(home, kafka.bootstrap, fresh_database_url, topic, max_events_per_epoch=60)


def test_killed_at_every_step_robbed_of_java_and_stopped_politely_it_counts_every_event_once(line: SpeedLine) -> None:
    """One story, as every start of Spark takes its time: seven kills, then a life that loses
    its Java process and is asked to stop, then the flow."""
    line.send(mixed(0, 1_400))
    frontiers = [line.frontier]
    for step in STEPS:
        process = line.process("--take-over", crash_at=step)
        java = _java_of(process.pid)
        assert exit_code(process, line.log_file) == -signal.SIGKILL, line.log_file.read_text()[-3000:]
        wait_until(lambda java=java: all(birth_of(pid) is None for pid in java), 20)
        frontiers.append(line.frontier)
        report = line.audited()
        assert report.exact, (step, report.to_json())
    assert all(later.reaches(earlier) and later != earlier for earlier, later in pairwise(frontiers))

    process = line.process()
    try:
        wait_until(lambda: line.frontier == end_of(line), 180)
        for pid in _java_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        line.send(mixed(1_400, 300))
        wait_until(lambda: line.frontier == end_of(line), 180)
        line.send(mixed(1_700, 3_000))
        before = _read(line)
        wait_until(lambda: _read(line) > before)
        process.send_signal(signal.SIGTERM)
        assert exit_code(process, line.log_file) == 0, line.log_file.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
    assert "starting again failure=StreamFailed" in line.log_file.read_text()
    assert line.source_position == line.frontier, "a polite stop leaves nothing to be read again"
    assert line.audited().exact

    run_flow = "from flows.speed import speed; speed(until_caught_up=True)"
    flow = line.process_of("-c", run_flow)
    assert exit_code(flow, line.log_file) == 0, line.log_file.read_text()[-3000:]
    assert line.frontier == end_of(line)
    assert line.audited().exact
    assert not list(line.settings.run_folder.glob("speed-checkpoint-*")), "those of the killed ones are cleared too"


def _read(line: SpeedLine) -> int:
    return int(line.query("SELECT coalesce(sum(read), 0) FROM {s}.generations")[0][0])


def _java_of(pid: int) -> list[int]:
    """The Java processes below a process, once there is one; none if it ended before."""
    found: list[int] = []

    def look() -> bool:
        found[:] = [child for child in _below(pid) if "java" in _command(child)]
        return bool(found) or birth_of(pid) is None

    wait_until(look)
    return found


def _below(pid: int) -> list[int]:
    try:
        children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [*children, *(each for child in children for each in _below(child))]


def _command(pid: int) -> str:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name
    except OSError:
        return ""
