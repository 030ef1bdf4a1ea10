"""Whether a night's cost grows with history: the same new day after one day and after ten.

Each history has its own topic, line and tables and is published by a first night. Then each gets the same number of new
events, some late for the day before, some re-deliveries of old ones; the nights after that are compared, in turn.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event as StopSignal
from typing import Any

from benchmarks.report import Result, Table, Target
from benchmarks.services import BenchmarkFailed, Services, measured
from benchmarks.tapes import require_sent
from infra.deliveries import Mix, planned_deliveries
from infra.generator import Tape
from infra.producer import open_producer, send_all
from infra.settings import Settings
from views.registry import ALL_VIEWS

HISTORIES = (1, 10)
FIRST_DAY = datetime(2026, 3, 1, tzinfo=UTC)
BOUND = 1.3
LATE = 0.01
STEPS = ("seal", "ingest", "recompute", "check", "load", "publish", "expire")
EACH_RUN_SECONDS = 900.0


@dataclass(slots=True)
class _Line:
    history: int
    settings: Settings
    days: int = 0
    old: list[tuple[bytes | None, bytes]] = field(default_factory=list)
    """Some deliveries of the history, to be delivered again."""
    nights: list[dict[str, Any]] = field(default_factory=list)


def bench(services: Services, *, day: int, rounds: int, say: Any) -> Result:
    lines = []
    for history in HISTORIES:
        topic = services.new_topic(f"nights-{history}")
        line = _Line(history, services.settings(topic=topic, line=f"history_{history}"))
        say(f"history of {history} x {day:,} events: counting it and its first night")
        _grow(services, line, days=history, day=day)
        _night(services, line)
        lines.append(line)
    for number in range(rounds):
        for line in lines:
            say(f"night {number + 2} after a history of {line.history}")
            _grow(services, line, days=1, day=day)
            line.nights.append(_night(services, line))
    return _result(lines, day)


def _grow(services: Services, line: _Line, *, days: int, day: int) -> None:
    """New days into the topic, counted by the speed layer: a night goes no further than its frontier."""
    tape = Tape(seed=line.days, start=FIRST_DAY + timedelta(days=line.days), gap=timedelta(days=1) / day, late=LATE)
    producer, partitions = open_producer(services.bootstrap, line.settings.topic)
    chunks = list(planned_deliveries(tape, Mix(duplicates=0.05), 0, days * day, partitions=partitions, earlier=line.old))
    require_sent(send_all(producer, line.settings.topic, chunks, ledger=None, rate=None, stop=StopSignal()))
    line.old += [(p.key, p.value) for chunk in chunks[:: 2 * days] for p in chunk.deliveries[::10] if p.value is not None]
    line.days += days
    task = {"views": [view.name for view in ALL_VIEWS], "until_caught_up": True}
    counted = measured(services, "child_speed", line.settings, task, seconds=EACH_RUN_SECONDS).report["commits"]
    if sum(each[2] for each in counted) != days * day:
        raise BenchmarkFailed(f"not exact: {sum(each[2] for each in counted)} events counted, {days * day} were new")


def _night(services: Services, line: _Line) -> dict[str, Any]:
    task = {"postgres": services.servers["postgres"]}
    report = measured(services, "child_night", line.settings, task, seconds=EACH_RUN_SECONDS).report
    if not report["published"]:
        raise BenchmarkFailed("a night published nothing")
    return report


def _result(lines: list[_Line], day: int) -> Result:
    short, long = lines
    rows = []
    for step in STEPS:
        wall = [statistics.median(night["steps"][step]["seconds"] for night in line.nights) for line in lines]
        cpu = [statistics.median(night["steps"][step]["cpu"] for night in line.nights) for line in lines]
        rows.append((step, *wall, *cpu))
    wall_totals, cpu_totals = ([[_total(night, unit) for night in line.nights] for line in lines] for unit in ("seconds", "cpu"))
    medians = [statistics.median(totals) for totals in (*wall_totals, *cpu_totals)]
    rows.append(("the night", *medians))
    wall_ratio, cpu_ratio = (statistics.median(b / a for a, b in zip(*totals, strict=True)) for totals in (wall_totals, cpu_totals))
    columns = ("", f"seconds, {short.history}x", f"seconds, {long.history}x", f"CPU s, {short.history}x", f"CPU s, {long.history}x")
    title = f"A night of {day:,} new events after {short.history} x and {long.history} x {day:,} (median of {len(short.nights)})"
    result = Result("nights", tables=[Table(title, columns, rows)])
    result.targets = [
        Target(f"night after {long.history}x history / after {short.history}x, seconds", wall_ratio, BOUND, at_least=False),
        Target(f"night after {long.history}x history / after {short.history}x, CPU", cpu_ratio, BOUND, at_least=False),
    ]
    starts = [night["steps"]["start Spark"]["seconds"] for line in lines for night in line.nights]
    result.notes.append(f"without the start of Spark, which took {statistics.median(starts):.1f} s before each night.")
    result.figures = {f"history_{line.history}": line.nights for line in lines}
    return result


def _total(night: dict[str, Any], unit: str) -> float:
    return float(sum(night["steps"][step][unit] for step in STEPS))
