"""Detached processes and the files that remember them.

A process is known by its pid *and* its birth, so a stale file and a pid that the system gave to someone else are both recognised.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infra.disk import disk_errors
from serving.errors import StackFault

LONGEST_LOG_BYTES = 20 << 20


@dataclass(frozen=True, slots=True)
class Running:
    """A living process that this home started."""

    name: str
    pid: int
    birth: str

    def alive(self) -> bool:
        return birth_of(self.pid) == self.birth


def birth_of(pid: int) -> str | None:
    """What tells this process from any other that ever had its pid; None if it is gone."""
    with suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)  # a dead child of ours stays a zombie until someone asks
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _birth_by_ps(pid)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None if after_name[0] in "ZX" else f"{boot}/{after_name[19]}"


def _birth_by_ps(pid: int) -> str | None:
    shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return " ".join(shown[1:]) if shown and not shown[0].startswith("Z") else None


def recorded(run_folder: Path, name: str) -> Running | None:
    """The living process of that name; None where the file is absent, stale, damaged or names a recycled pid."""
    try:
        fields = json.loads((run_folder / f"{name}.pid").read_text())
        running = Running(name, int(fields["pid"]), str(fields["birth"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return running if running.alive() else None


def record(run_folder: Path, name: str, pid: int) -> Running:
    """Remember a living process.

    Guarantees: the file appears whole or not at all.
    """
    birth = birth_of(pid)
    if birth is None:
        raise StackFault(f"{name} ended at once.", fix="Look at its log under the home.", process=name)
    with disk_errors(run_folder):
        fresh = run_folder / f".{name}.pid"
        fresh.write_text(json.dumps({"pid": pid, "birth": birth}))
        fresh.replace(run_folder / f"{name}.pid")
    return Running(name, pid, birth)


def start(run_folder: Path, log_file: Path, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Running:
    """Start a process of its own session that outlives this one, its output appended to `log_file`."""
    with disk_errors(run_folder):
        run_folder.mkdir(parents=True, exist_ok=True)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        if log_file.exists() and log_file.stat().st_size > LONGEST_LOG_BYTES:
            log_file.replace(log_file.with_suffix(".log.1"))
        log_file.touch(mode=0o640)
    pid = os.posix_spawnp(
        command[0],
        list(command),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_file), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
    )
    return record(run_folder, name, pid)


def stop(run_folder: Path, running: Running, patience: float, first: signal.Signals = signal.SIGTERM) -> bool:
    """End a process, asking first; True if it went by itself.

    Guarantees: never signals another process that has the same pid by now; running it twice is harmless.
    """
    clean = True
    _signal(running, first)
    if not wait_until(lambda: not running.alive(), patience):
        clean = False
        _signal(running, signal.SIGKILL)
        wait_until(lambda: not running.alive(), 10)
    forget(run_folder, running.name)
    return clean


def forget(run_folder: Path, name: str) -> None:
    (run_folder / f"{name}.pid").unlink(missing_ok=True)


def _signal(running: Running, which: signal.Signals) -> None:
    if running.alive():
        with suppress(ProcessLookupError):
            os.kill(running.pid, which)


def wait_until(condition: Callable[[], bool], seconds: float, every: float = 0.05) -> bool:
    """Poll until `condition` holds; False if it did not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def tail(log_file: Path, since: int = 0, lines: int = 3) -> str:
    """The last lines a process wrote after byte `since`, as one line for an error."""
    try:
        with log_file.open("rb") as stream:
            stream.seek(max(since, log_file.stat().st_size - 65536))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    kept = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " | ".join(kept[-lines:])
