"""`seam speed` as a process of its own, killed at every step, stopped politely, and robbed of its Java process."""

from __future__ import annotations

import os
import re
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from infra.process import birth_of
from tests.conftest import Kafka
from tests.speed.speed_line import SpeedLine, end_of, exit_code, mixed, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(420)]

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


def test_killed_at_every_step_it_still_counts_every_event_once(line: SpeedLine) -> None:
    line.send(mixed(0, 1_400))
    frontiers = []
    for step in STEPS:
        process = line.process(crash_at=step)
        java = _java_of(process.pid)
        assert exit_code(process, line.log_file) == -signal.SIGKILL, line.log_file.read_text()[-3000:]
        wait_until(lambda java=java: all(birth_of(pid) is None for pid in java), 20)
        frontiers.append(line.frontier)
        report = line.audited()
        assert report.exact, (step, report.to_json())
    assert all(later.reaches(earlier) and later != earlier for earlier, later in pairwise(frontiers))
    assert exit_code(line.process("--until-caught-up"), line.log_file) == 0
    assert line.frontier == end_of(line)
    assert line.audited().exact
    assert not list(line.settings.run_folder.glob("speed-checkpoint-*")), "the checkpoints of the killed ones are cleared"


def test_it_survives_its_java_process_and_a_polite_stop_leaves_nothing_to_read_again(line: SpeedLine) -> None:
    line.send(mixed(0, 300))
    process = line.process()
    try:
        wait_until(lambda: line.frontier == end_of(line))
        for java in _java_of(process.pid):
            os.kill(java, signal.SIGKILL)
        line.send(mixed(300, 300))
        wait_until(lambda: line.frontier == end_of(line), 90)
        line.send(mixed(600, 2_000))
        wait_until(lambda: _read(line) > 1_200)
        process.send_signal(signal.SIGTERM)
        assert exit_code(process, line.log_file) == 0, line.log_file.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
    assert line.source_position == line.frontier
    assert "starting again failure=StreamFailed" in line.log_file.read_text()
    before = _read(line)
    assert exit_code(line.process("--until-caught-up"), line.log_file) == 0
    last_life = line.log_file.read_text().rpartition("state loaded")[2]
    read_in_last_life = sum(int(count) for count in re.findall(r"epoch committed .* read=(\d+)", last_life))
    assert read_in_last_life == _read(line) - before
    assert line.frontier == end_of(line)
    assert line.audited().exact


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
