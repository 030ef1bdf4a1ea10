"""The exact speed layer beside its limit: one topic, taken in turn, in one run.

A fetches, parses and validates to nowhere. B is the whole speed layer: the same stream and expressions, then
de-duplication, fold, and one transaction an epoch. Each B must be exact, or no figure is given.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psycopg

from benchmarks.report import Result, Table, Target
from benchmarks.resources import others_share
from benchmarks.services import PARTITIONS, BenchmarkFailed, Outcome, Services, measured
from benchmarks.tapes import EVENTS_PER_SECOND, Truth, preload, tape_of
from serving.store.cells import speed_table
from views.registry import ALL_VIEWS
from views.view import View

SKIPPED = 0.3
"""Share of the deliveries that a warm rate leaves out at the beginning: Spark's start and Java's first compilations."""
EACH_RUN_SECONDS = 900.0
TRIGGER_MS = 50
"""Never the limit here, for either: micro-batches follow one another at once."""
MOST_OTHERS = 0.1
"""Share of the CPU that other work may take during a run before its pair is taken again."""
GROUPS = ("python", "java", "postgres", "kafka")
VIEW_SETS: dict[str, tuple[tuple[View, ...], float]] = {
    "revenue_by_merchant": (tuple(view for view in ALL_VIEWS if view.name == "revenue_by_merchant"), 0.75),
    "all three views": (tuple(ALL_VIEWS), 0.6),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run's figures. CPU is in seconds per million deliveries while warm, memory in MiB at its peak."""

    rate: float
    whole_rate: float
    cpu: dict[str, float]
    memory: dict[str, float]
    micro_batches: int
    others: float
    """Share of the machine's CPU that went to other work while warm."""


def bench(services: Services, *, events: int, pairs: int, say: Any) -> Result:
    topic = services.new_topic("speed")
    say(f"preloading {events:,} events")
    truth = preload(services, topic, tape_of(1), events)
    result = Result("speed", figures={"truth": asdict(truth), "warm_skips": SKIPPED, "views": {}})
    for name, (views, bound) in VIEW_SETS.items():
        say(f"{name}: {pairs} pairs")
        _add(result, name, _pairs(services, topic, truth, views, pairs, say), bound)
    say("a plain Python consumer")
    _add_plain(result, services, topic, truth)
    result.notes.append(
        f"{truth.deliveries:,} deliveries of {truth.events:,} events; event time is {EVENTS_PER_SECOND:,} events a second. Warm leaves out "
        f"the first {SKIPPED:.0%} of the deliveries; whole counts from the start of the process. Every B was exact."
    )
    return result


def _pairs(services: Services, topic: str, truth: Truth, views: Sequence[View], many: int, say: Any) -> dict[str, list[Run]]:
    """A B A B …; a pair that shared the machine with other work is taken again, up to as many times as there are pairs."""
    kept: dict[str, list[Run]] = {"A": [], "B": []}
    again = many
    while len(kept["A"]) < many:
        pair = {"A": read_only(services, topic, truth, views), "B": speed_layer(services, topic, truth, views)}
        others = max(run.others for run in pair.values())
        say(f"A {pair['A'].rate:,.0f}, B {pair['B'].rate:,.0f} events/s warm; {others:.0%} of the CPU went to other work")
        if others > MOST_OTHERS and again:
            again -= 1
            continue
        for side, run in pair.items():
            kept[side].append(run)
    return kept


def read_only(services: Services, topic: str, truth: Truth, views: Sequence[View]) -> Run:
    settings = services.settings(topic=topic, trigger_ms=TRIGGER_MS)
    task = {"views": [view.name for view in views], "deliveries": truth.deliveries, "partitions": PARTITIONS}
    outcome = measured(services, "child_reader", settings, task, seconds=EACH_RUN_SECONDS)
    return _run(outcome, outcome.report["steps"], truth)


def speed_layer(services: Services, topic: str, truth: Truth, views: Sequence[View]) -> Run:
    with services.fresh_database() as url:
        settings = services.settings(topic=topic, trigger_ms=TRIGGER_MS, database_url=url)
        task = {"views": [view.name for view in views], "until_caught_up": True}
        outcome = measured(services, "child_speed", settings, task, seconds=EACH_RUN_SECONDS)
        require_exact(url, settings.line, truth, views)
    return _run(outcome, [(at, read) for at, read, _, _ in outcome.report["commits"]], truth)


def require_exact(url: str, line: str, truth: Truth, views: Sequence[View]) -> None:
    """Read, counted and the id checksum, of the epochs and of every view's cells, are those of the tape."""
    with psycopg.connect(url) as conn:
        totals = "sum(read)::bigint, sum(counted)::bigint, bit_xor(id_checksum)"
        found = conn.execute(f"SELECT {totals} FROM line_{line}.epochs").fetchone()
        if found != (truth.deliveries, truth.events, truth.id_checksum):
            raise BenchmarkFailed(f"not exact: epochs say {found}, the tape {truth}")
        for view in views:
            table = speed_table(line, view).as_string(None)
            cells = conn.execute(f"SELECT sum(events)::bigint, bit_xor(id_checksum) FROM {table}").fetchone()
            if cells != (truth.events, truth.id_checksum):
                raise BenchmarkFailed(f"not exact: {view.name} says {cells}, the tape {truth}")


def _run(outcome: Outcome, steps: list[tuple[float, int]], truth: Truth) -> Run:
    if sum(read for _, read in steps) != truth.deliveries:
        raise BenchmarkFailed(f"{sum(read for _, read in steps)} deliveries were read, not {truth.deliveries}")
    done, warm_from, warm_at = 0, 0, 0.0
    for at, read in steps:
        done += read
        if not warm_at and done >= SKIPPED * truth.deliveries:
            warm_from, warm_at = done, at
    end = steps[-1][0]
    warm = truth.deliveries - warm_from
    if not warm:
        raise BenchmarkFailed("too few events for a warm rate: give more with --events")
    return Run(
        rate=warm / (end - warm_at),
        whole_rate=truth.deliveries / (end - outcome.began),
        cpu={name: outcome.costs[name].cpu_between(warm_at, end) / warm * 1e6 for name in GROUPS},
        memory={name: outcome.costs[name].peak_mib for name in GROUPS},
        micro_batches=len(steps),
        others=others_share(outcome.costs, warm_at, end),
    )


def _add(result: Result, name: str, runs: dict[str, list[Run]], bound: float) -> None:
    ratios = [b.rate / a.rate for a, b in zip(runs["A"], runs["B"], strict=True)]
    ratio = statistics.median(ratios)
    rates, costs = [], []
    for side, what in (("A", "A fetch, parse, validate"), ("B", "B whole speed layer")):
        each = sorted(run.rate for run in runs[side])
        whole = statistics.median(run.whole_rate for run in runs[side])
        rates.append((what, statistics.median(each), f"{each[0]:,.0f}-{each[-1]:,.0f}", whole))
        cpu = [statistics.median(run.cpu[group] for run in runs[side]) for group in GROUPS]
        memory = [max(run.memory[group] for run in runs[side]) for group in GROUPS]
        costs.append((what, *cpu, sum(cpu), *memory))
    title = f"{name}: B/A = {ratio:.2f} (pairs {min(ratios):.2f}-{max(ratios):.2f})"
    result.tables.append(Table(title, ("", "warm events/s", "least-most", "whole run"), rates))
    columns = ("", *GROUPS, "all", *(f"{group} MiB" for group in GROUPS))
    result.tables.append(Table(f"{name}: CPU seconds per million events, warm; greatest memory", columns, costs))
    others = max(run.others for side in runs.values() for run in side)
    result.notes.append(f"{name}: at most {others:.0%} of the machine's CPU went to other work during a run.")
    result.targets.append(Target(f"speed layer / its limit, {name}", ratio, bound, at_least=True))
    result.figures["views"][name] = {"ratios": ratios, **{side: [asdict(run) for run in runs[side]] for side in runs}}


def _add_plain(result: Result, services: Services, topic: str, truth: Truth) -> None:
    outcome = measured(services, "child_plain", services.settings(topic=topic), {"deliveries": truth.deliveries}, seconds=EACH_RUN_SECONDS)
    plain = outcome.report
    if plain["events"] != truth.events:
        raise BenchmarkFailed(f"the plain consumer counted {plain['events']} events, not {truth.events}")
    columns = ("", "events/s", "CPU s/M events")
    row = ("plain Python consumer, one core, to memory", plain["rate"], plain["cpu"] / truth.deliveries * 1e6)
    result.tables.append(Table("For comparison: no Spark, no store, no strict rules", columns, [row]))
    result.figures["plain"] = plain
