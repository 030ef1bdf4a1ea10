"""A Kafka broker and a PostgreSQL of the benchmark's own, in a temporary home that is gone afterwards; and child processes.

Every measured process is a child with a process group of its own, so that its CPU and memory are its own and an
interrupted benchmark leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.resources import Meter, Samples
from infra.kafka_broker import KafkaBroker
from infra.kafka_log import ensure_topic
from infra.postgres import Postgres
from infra.settings import Settings, load_settings
from infra.stack import PROJECT, child_environment

PARTITIONS = 4
_numbers = count(1)


class BenchmarkFailed(Exception):
    """A measured process failed or took too long; no figure is given."""


@dataclass(frozen=True, slots=True)
class Services:
    home: Path
    bootstrap: str
    database_url: str
    servers: dict[str, int]
    """Process ids, for the meter."""

    def new_topic(self, name: str) -> str:
        ensure_topic(self.bootstrap, name, PARTITIONS)
        return name

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """An empty database, dropped afterwards, on a server that has written out everything before."""
        name = f"bench_{next(_numbers)}"
        with psycopg.connect(self.database_url, autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY")
            conn.execute("CHECKPOINT")
            try:
                yield f"{self.database_url.rpartition('/')[0]}/{name}"
            finally:
                conn.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def settings(self, **fields: Any) -> Settings:
        """Settings of one run: these services, a folder of its own."""
        defaults = {"home": self.home / f"run-{next(_numbers)}", "kafka_bootstrap": self.bootstrap, "database_url": self.database_url}
        return load_settings(**(defaults | fields))


@contextmanager
def services() -> Iterator[Services]:
    """Both servers running; stopped and deleted at the end, also after Ctrl-C."""
    home = Path(tempfile.mkdtemp(prefix="seam-bench-"))
    settings = load_settings(home=home, kafka_bootstrap="", database_url="")
    broker, postgres = KafkaBroker.of(settings), Postgres.of(settings)
    try:
        servers = {"kafka": broker.start().pid, "postgres": postgres.start().pid}
        yield Services(home, broker.bootstrap, postgres.url, servers)
    finally:
        broker.stop()
        postgres.stop()
        shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a child reported, and what it cost."""

    report: dict[str, Any]
    began: float
    costs: dict[str, Samples]


@dataclass(slots=True)
class Child:
    """A running module of this package that was given a task and writes its report as JSON when it ends."""

    module: str
    process: subprocess.Popen[bytes]
    out: Path
    log: Path
    report: dict[str, Any] = field(default_factory=dict)

    def wait(self, seconds: float) -> dict[str, Any]:
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise BenchmarkFailed(f"{self.module} did not end within {seconds:.0f} s. {self._tail()}") from None
        if code or not self.out.exists():
            raise BenchmarkFailed(f"{self.module} ended with code {code}. {self._tail()}")
        self.report = json.loads(self.out.read_text())
        return self.report

    def ask_to_stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _tail(self) -> str:
        return "Its last words: " + " | ".join(line[:200] for line in self.log.read_text(errors="replace").strip().splitlines()[-8:])


@contextmanager
def child(module: str, settings: Settings, task: dict[str, Any]) -> Iterator[Child]:
    """Run `benchmarks.<module>` with a task while the block runs; whatever of it still lives at the end is killed."""
    settings.home.mkdir(parents=True, exist_ok=True)
    number = next(_numbers)
    out, log = settings.home / f"{module}-{number}.json", settings.home / f"{module}-{number}.log"
    command = [sys.executable, "-m", f"benchmarks.{module}", json.dumps(task), str(out)]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd=PROJECT,
            env=child_environment(settings),
            start_new_session=True,
        )
    running = Child(module, process, out, log)
    try:
        yield running
    finally:
        running.end()


def measured(services: Services, module: str, settings: Settings, task: dict[str, Any], *, seconds: float) -> Outcome:
    """Run a child to its end under the meter."""
    import time

    began = time.time()
    with child(module, settings, task) as running, Meter(running.process.pid, services.servers) as meter:
        report = running.wait(seconds)
    return Outcome(report, began, meter.groups)
