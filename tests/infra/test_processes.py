from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra import process
from infra.ports import free_port, is_free, kept_port, require_free
from serving.errors import BadSetting, StackFault

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"]


def start(home: Path, command: list[str] = SLEEPER) -> process.Running:
    running = process.start(home / "run", home / "logs" / "it.log", "it", command, os.environ)
    assert process.wait_until(lambda: "up" in process.tail(home / "logs" / "it.log"), 10)
    return running


def test_a_started_process_is_found_again_and_stops_when_asked(home: Path) -> None:
    running = start(home)
    assert process.recorded(home / "run", "it") == running
    assert process.stop(home / "run", running, 5) is True
    assert not running.alive()
    assert process.recorded(home / "run", "it") is None


def test_a_process_that_does_not_listen_is_killed(home: Path) -> None:
    running = start(home, STUBBORN)
    assert process.stop(home / "run", running, 0.2) is False
    assert not running.alive()


def test_a_dead_child_does_not_count_as_living_while_it_is_a_zombie(home: Path) -> None:
    running = start(home)
    os.kill(running.pid, signal.SIGKILL)
    assert process.wait_until(lambda: not running.alive(), 5)


def test_a_pid_that_someone_else_has_by_now_is_neither_found_nor_signalled(home: Path) -> None:
    stranger = subprocess.Popen(SLEEPER, stdout=subprocess.DEVNULL)
    try:
        (home / "run").mkdir()
        (home / "run" / "it.pid").write_text(json.dumps({"pid": stranger.pid, "birth": "another/1"}))
        assert process.recorded(home / "run", "it") is None
        process.stop(home / "run", process.Running("it", stranger.pid, "another/1"), 0.1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "12"])
def test_a_damaged_pid_file_means_not_running(home: Path, content: str) -> None:
    (home / "it.pid").write_text(content)
    assert process.recorded(home, "it") is None


def test_a_process_that_ends_at_once_is_an_error_or_soon_gone(home: Path) -> None:
    try:
        running = process.start(home / "run", home / "logs" / "it.log", "it", ["true"], os.environ)
    except StackFault:
        return
    assert process.wait_until(lambda: not running.alive(), 5)


def test_a_folder_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "run").write_text("a file, not a folder")
    with pytest.raises(BadSetting, match="cannot be written"):
        process.start(home / "run" / "x", home / "logs" / "it.log", "it", ["true"], os.environ)


def test_waiting_ends_at_the_deadline() -> None:
    began = time.monotonic()
    assert process.wait_until(lambda: False, 0.2) is False
    assert time.monotonic() - began < 2


def test_a_port_is_chosen_once_and_kept(home: Path) -> None:
    first = kept_port(home / "port", 0)
    assert kept_port(home / "port", 0) == first
    assert kept_port(home / "port", 4711) == 4711
    assert kept_port(home / "port", 0) == 4711


def test_a_taken_port_is_said_with_the_setting_that_moves_it() -> None:
    import socket

    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(StackFault, match=f"Port {port} of the thing is taken.*SEAM_THING_PORT"):
            require_free(port, "thing", "SEAM_THING_PORT")
    assert is_free(port)
