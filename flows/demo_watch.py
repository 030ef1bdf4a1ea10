"""Looks at the running system while the demo tells its story: progress bars, and the samples of the report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flows.report import Mark, Sample
from infra.kafka_log import KafkaLog
from infra.stack import Endpoints
from serving.errors import SeamError, StackFault
from serving.store import database, read
from serving.store.records import Query
from serving.store.vectors import OffsetVector
from views.registry import view_named

_INTERVAL_SECONDS = 0.5


class Watch:
    """Samples log end, frontier, cut and both sides' share twice a second, on a thread of its own."""

    def __init__(self, endpoints: Endpoints, topic: str, line: str) -> None:
        self._endpoints, self._topic, self._line = endpoints, topic, line
        self._began = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-watch", daemon=True)
        self.samples: list[Sample] = []
        self.marks: list[Mark] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(timeout=10)

    def mark(self, text: str) -> None:
        self.marks.append(Mark(time.monotonic() - self._began, text))

    def _run(self) -> None:
        usage = view_named("system_usage")
        if usage is None:
            return
        with KafkaLog(self._endpoints.kafka_bootstrap, self._topic) as log, closing(self._connect()) as connection:
            while not self._done.wait(_INTERVAL_SECONDS):
                try:
                    answer = read.read(connection, self._line, usage, Query(total=True))
                    end = log.end()
                except SeamError:
                    continue
                told = answer.provenance
                elapsed = time.monotonic() - self._began
                self.samples.append(Sample(elapsed, _sum(end), _sum(told.frontier), _sum(told.cut), told.from_batch, told.from_speed))

    def _connect(self) -> database.Connection:
        return database.connect(self._endpoints.database_url, name="seam-demo")


def bar(
    console: Console, label: str, target: int, reached: Callable[[], int], alive: Callable[[], str | None], *, limit: float = 300
) -> int:
    """Shows a bar until `reached()` is at `target` and returns what it then is.

    `alive` says what went wrong (None while all is well); the wait ends with that, or after `limit` seconds, as a `StackFault`.
    """
    columns = (TextColumn("  {task.description}"), BarColumn(bar_width=40), MofNCompleteColumn(), TimeElapsedColumn())
    deadline = time.monotonic() + limit
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=target)
        while (now := reached()) < target:
            progress.update(task, completed=now)
            if trouble := alive():
                raise StackFault(f"{label}: {trouble}", fix="Look into the log it names.")
            if time.monotonic() > deadline:
                raise StackFault(f"{label}: {now:,} of {target:,} after {limit:.0f} s", fix="Look into the logs under the demo's home.")
            time.sleep(0.2)
        progress.update(task, completed=target)
    return now


def _sum(vector: OffsetVector) -> int:
    return sum(offset for _, offset in vector)
