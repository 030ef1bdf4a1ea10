"""Many seen ids: how long a start loads them, and how much memory the speed layer takes while it drains a backlog."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from benchmarks.report import Result, Table, Target
from benchmarks.resources import MIB
from benchmarks.services import BenchmarkFailed, Outcome, Services, measured
from benchmarks.tapes import preload, tape_of
from infra.kafka_log import KafkaLog
from serving.store import database, schema
from serving.store.records import LineInfo
from speed_layer.seen import pack
from views.registry import ALL_VIEWS

IDS_PER_EPOCH = 100_000
EVERY = (0.1, 0.25, 0.5, 0.75, 1.0)
LOAD_SECONDS = 5.0
MOST_MIB = 3 * 1024.0
MOST_BYTES_PER_EVENT = 60.0
"""Growth while draining: 16 bytes of an id, its part of the bitmap, and room for runs being merged."""


def bench(services: Services, *, seen: int, backlog: int, say: Any) -> Result:
    topic = services.new_topic("memory")
    say(f"preloading a backlog of {backlog:,} events")
    truth = preload(services, topic, tape_of(3), backlog)
    with services.fresh_database() as url:
        settings = services.settings(topic=topic, database_url=url)
        say(f"storing {seen:,} seen ids")
        _store_seen(services, url, settings.line, topic, seen)
        say("starting the speed layer on them")
        task = {"views": [view.name for view in ALL_VIEWS], "until_caught_up": True}
        outcome = measured(services, "child_speed", settings, task, seconds=900)
    counted = sum(each[2] for each in outcome.report["commits"])
    if counted != truth.events:
        raise BenchmarkFailed(f"not exact: {counted} events counted, the tape has {truth.events}")
    return _result(outcome, seen, truth.deliveries)


def _store_seen(services: Services, url: str, line: str, topic: str, many: int) -> None:
    """As if epochs before had counted that many events, of which nothing is left but their ids."""
    random = np.random.default_rng(5)
    with KafkaLog(services.bootstrap, topic) as log:
        info = LineInfo(line, topic, log.topic_id(), log.beginning())
    with database.connect(url) as conn:
        schema.create_line(conn, info, ALL_VIEWS)
        for epoch in range(1, many // IDS_PER_EPOCH + 1):
            first, second = (random.integers(0, 1 << 64, IDS_PER_EPOCH, np.uint64) for _ in range(2))
            conn.execute(
                f"INSERT INTO line_{line}.seen_ids (epoch, generation, ids, newest_log_time, packed) VALUES (%s, 1, %s, %s, %b)",
                (epoch, IDS_PER_EPOCH, datetime.now(UTC), pack(np.sort(first), second)),
            )
        conn.execute(f"UPDATE line_{line}.frontier SET epoch = %s", (many // IDS_PER_EPOCH,))
        conn.execute("CHECKPOINT")


def _result(outcome: Outcome, seen: int, deliveries: int) -> Result:
    commits, loaded = outcome.report["commits"], outcome.report["loaded"]
    if int(loaded["seen_ids"]) != seen:
        raise BenchmarkFailed(f"{loaded['seen_ids']} ids were loaded, not {seen}")
    done = np.cumsum([read for _, read, *_ in commits])
    points = [(share, commits[int(np.searchsorted(done, share * deliveries))][0]) for share in EVERY]
    python, java = outcome.costs["python"], outcome.costs["java"]
    resident = [tuple(float(np.interp(at, group.at, group.memory)) / MIB for group in (python, java)) for _, at in points]
    rows: list[tuple[object, ...]] = [
        (f"{share:.0%} of the backlog", *now, sum(now)) for (share, _), now in zip(points, resident, strict=True)
    ]
    peak = _peak_together(outcome)
    rows.append(("greatest at any time", python.peak_mib, java.peak_mib, peak))
    growth = (resident[-1][0] - resident[1][0]) * MIB / (0.75 * deliveries)
    rate = (done[-1] - done[len(done) // 4]) / (commits[-1][0] - commits[len(done) // 4][0])
    result = Result("memory", tables=[Table(f"Resident MiB with {seen:,} ids seen before", ("", "python", "java", "both"), rows)])
    result.targets = [
        Target(f"loading {seen:,} seen ids, seconds", float(loaded["seconds"]), LOAD_SECONDS, at_least=False),
        Target("speed layer, greatest MiB", peak, MOST_MIB, at_least=False),
        Target("growth of the Python process, bytes an event", growth, MOST_BYTES_PER_EVENT, at_least=False),
    ]
    result.notes.append(f"the backlog of {deliveries:,} deliveries was drained at {rate:,.0f} events/s after its first quarter.")
    result.figures = {
        "load_seconds": float(loaded["seconds"]),
        "rows": rows,
        "growth_bytes_per_event": growth,
        "drain_rate": float(rate),
        "memory_over_time": {name: list(zip(each.at, each.memory, strict=True)) for name, each in (("python", python), ("java", java))},
    }
    return result


def _peak_together(outcome: Outcome) -> float:
    """The greatest sum at one moment, in MiB."""
    python, java = outcome.costs["python"], outcome.costs["java"]
    beside = np.interp(python.at, java.at, java.memory, left=0)
    return float((np.array(python.memory) + beside).max()) / MIB
