"""What processes cost: CPU seconds and resident memory of named groups, sampled from /proc while something runs.

A database server forks a process for each connection, so its group is the server with all its children, dead ones too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

TICKS = os.sysconf("SC_CLK_TCK")
EVERY_SECONDS = 0.25
MIB = 1 << 20
MACHINE = "machine"


def cpu_of(pid: int, *, reaped: bool = False) -> float:
    """CPU seconds of one process; with `reaped`, also those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11 : 15 if reaped else 13]) / TICKS


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, file.read_text().split())
    return found


def machine_cpu() -> float:
    """CPU seconds that this machine spent on anything, or that its host took away, since it started."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / TICKS


def server_cpu(pid: int) -> float:
    """CPU seconds of a server with all the processes it ever started."""
    total = cpu_of(pid, reaped=True)
    for child in children_of(pid):
        with suppress(OSError):
            total += cpu_of(child)
    return total


def java_of(pid: int) -> int | None:
    """The Java process that this Python process started."""
    for child in children_of(pid):
        with suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                return child
    return None


def memory_of(pid: int) -> tuple[int, int]:
    """Resident bytes that are this process's own, and those it shares with others."""
    own = shared = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssFile:")):
            own += int(line.split()[1]) << 10
        elif line.startswith("RssShmem:"):
            shared = int(line.split()[1]) << 10
    return own, shared


@dataclass(slots=True)
class Samples:
    """One group over time. `cpu` only grows; `memory` is what was resident then."""

    at: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    def cpu_between(self, start: float, end: float) -> float:
        if not self.at:
            return 0.0
        first, last = np.interp([start, end], self.at, self.cpu)
        return float(last - first)

    @property
    def peak_mib(self) -> float:
        return max(self.memory, default=0) / MIB


class Meter:
    """Samples in a thread of its own while its `with` block runs. Groups: `python`, its `java`, and servers by their pid."""

    def __init__(self, python: int, servers: Mapping[str, int]) -> None:
        self._python = python
        self._java: int | None = None
        self._servers = servers
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="meter", daemon=True)
        self.groups: dict[str, Samples] = {name: Samples() for name in ("python", "java", *servers, MACHINE)}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join(timeout=10)

    def _sample(self) -> None:
        while not self._end.wait(EVERY_SECONDS):
            self._java = self._java or java_of(self._python)
            self._add("python", self._python, [])
            if self._java:
                self._add("java", self._java, [])
            for name, pid in self._servers.items():
                self._add(name, pid, children_of(pid))
            self.groups[MACHINE].at.append(time.time())
            self.groups[MACHINE].cpu.append(machine_cpu())

    def _add(self, name: str, pid: int, children: list[int]) -> None:
        samples = self.groups[name]
        with suppress(OSError, IndexError):
            own, shared = memory_of(pid)
            cpu = cpu_of(pid, reaped=name in self._servers)
            for child in children:
                with suppress(OSError, IndexError):
                    cpu += cpu_of(child)
                    child_own, child_shared = memory_of(child)
                    own, shared = own + child_own, max(shared, child_shared)  # shared pages are the same ones
            samples.at.append(time.time())
            samples.cpu.append(max(cpu, samples.cpu[-1] if samples.cpu else 0.0))
            samples.memory.append(own + shared)


def others_share(groups: Mapping[str, Samples], start: float, end: float) -> float:
    """Which share of the machine's CPU went to what is not measured: other work, the meter itself, the host."""
    spent = {name: samples.cpu_between(start, end) for name, samples in groups.items()}
    others = spent.pop(MACHINE) - sum(spent.values())
    return max(0.0, others) / ((end - start) * (os.cpu_count() or 1))
