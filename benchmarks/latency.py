"""How long from the append of a delivery until its count can be read, at a fixed load that does not wait for anyone.

All deliveries: from the broker's append time to the end of the commit that holds them (both on this machine's clock).
Canaries: from sending to the first merged read that shows them.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from benchmarks.canaries import Canaries
from benchmarks.report import Result, Table, Target
from benchmarks.services import BenchmarkFailed, Child, Services, child
from benchmarks.tapes import EVENTS_PER_SECOND
from infra.kafka_log import KafkaLog
from infra.process import wait_until
from serving.errors import SeamError
from serving.store import database, read
from views.registry import ALL_VIEWS

TRIGGER_MS = 500
BOUND_SECONDS = 1.5
LATE_SECONDS = 0.1
"""A producer further behind than this did not offer the load it was asked for."""

Instants = np.ndarray[Any, np.dtype[np.float64]]


def bench(services: Services, *, warm_up: float, seconds: float, say: Any) -> Result:
    topic = services.new_topic("latency")
    with services.fresh_database() as url:
        settings = services.settings(topic=topic, trigger_ms=TRIGGER_MS, database_url=url)
        task = {"views": [view.name for view in ALL_VIEWS], "until_caught_up": False}
        with child("child_speed", settings, task) as speed:
            _wait_for_life(url, settings.line, speed)
            say(f"the speed layer lives; {EVENTS_PER_SECOND:,} deliveries/s for {warm_up + seconds:.0f} s")
            offered = {"rate": EVENTS_PER_SECOND, "seconds": warm_up + seconds}
            with (
                child("child_producer", services.settings(topic=topic), offered) as producer,
                Canaries(services.bootstrap, topic, url, settings.line) as canaries,
            ):
                sent = producer.wait(warm_up + seconds + 120)
            _wait_for_the_end(services, topic, url, settings.line)
            speed.ask_to_stop()
            commits = speed.wait(120)["commits"]
    start, end = sent["began"] + warm_up, sent["began"] + warm_up + seconds
    appended, visible = _visible(_appended(services, topic), commits)
    chosen = (appended >= start) & (appended < end)
    result = _result(visible[chosen] - appended[chosen], np.array(canaries.waits(start, end)), sent, commits, start, end)
    _add_cold_start(result, appended - sent["began"], visible - appended)
    return result


def _wait_for_life(url: str, line: str, speed: Child) -> None:
    def lives() -> bool:
        if speed.process.poll() is not None:
            speed.wait(1)
        try:
            with database.connect(url) as conn:
                return read.seam(conn, line).stale_seconds is not None
        except SeamError:
            return False

    if not wait_until(lives, 120, every=0.5):
        raise BenchmarkFailed("the speed layer gave no sign of life")


def _wait_for_the_end(services: Services, topic: str, url: str, line: str) -> None:
    with KafkaLog(services.bootstrap, topic) as log, database.connect(url) as conn:
        end = log.end()
        if not wait_until(lambda: read.seam(conn, line).frontier.reaches(end), 120, every=0.2):
            raise BenchmarkFailed(f"the speed layer did not keep up: the log ends at {end}")


def _appended(services: Services, topic: str) -> dict[int, tuple[list[int], list[int]]]:
    """By partition, offsets and append times in milliseconds of every delivery, read back from the log."""
    consumer = Consumer({"bootstrap.servers": services.bootstrap, "group.id": "bench", "enable.auto.commit": False})
    found: dict[int, tuple[list[int], list[int]]] = {}
    left = 0
    for partition in consumer.list_topics(topic).topics[topic].partitions:
        found[partition] = ([], [])
        left += consumer.get_watermark_offsets(TopicPartition(topic, partition))[1]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
    while left:
        messages = consumer.consume(10_000, 10.0)
        if not messages:
            raise BenchmarkFailed("the log could not be read back")
        left -= len(messages)
        for message in messages:
            offsets, times = found[message.partition()]
            offsets.append(message.offset())
            times.append(message.timestamp()[1])
    consumer.close()
    return found


def _visible(log: dict[int, tuple[list[int], list[int]]], commits: list[Any]) -> tuple[Instants, Instants]:
    """For every delivery, when it was appended and when the commit that holds it had ended."""
    appended, visible = [], []
    ends = np.array([at for at, *_ in commits])
    for partition, (offsets, times) in log.items():
        reached = [until.get(str(partition), 0) for *_, until in commits]
        if offsets and offsets[-1] >= reached[-1]:
            raise BenchmarkFailed(f"partition {partition} was counted to {reached[-1]}, but the log goes to {offsets[-1]}")
        appended += times
        visible += [bisect_right(reached, offset) for offset in offsets]
    return np.array(appended) / 1000, ends[visible]


def _result(waits: Instants, canaries: Instants, sent: dict[str, Any], commits: list[Any], start: float, end: float) -> Result:
    epochs = [read for at, read, *_ in commits if start <= at < end]
    behind = max(sent["late_by"])
    every, seen = _percentiles(waits), _percentiles(canaries)
    rows = [("append to visible, every delivery", len(waits), *every), ("send to seen, canaries", len(canaries), *seen)]
    title = f"Latency in seconds at {sent['rate']:,.0f} deliveries/s, {TRIGGER_MS} ms trigger, all three views"
    result = Result("latency", tables=[Table(title, ("", "measured", "p50", "p99", "p99.9", "greatest"), rows)])
    result.targets.append(Target("append to visible, p99 seconds", every[1], BOUND_SECONDS, at_least=False))
    result.notes.append(
        f"{len(epochs)} epochs of {np.mean(epochs):,.0f} deliveries on average; the producer was at most {behind * 1000:.0f} ms late."
    )
    if behind > LATE_SECONDS:
        result.notes.append("the producer missed its schedule, so the load was not as even as asked for.")
    result.figures = {
        "deliveries": [len(waits), *every],
        "canaries": [len(canaries), *seen],
        "columns": ["measured", "p50", "p99", "p99.9", "greatest"],
        "offered_per_second": sent["rate"],
        "producer_late_seconds": behind,
        "epochs": len(epochs),
    }
    return result


def _add_cold_start(result: Result, since: Instants, waits: Instants) -> None:
    """How long the lag of the first seconds, while Java compiles, lasted: from when on no delivery waited longer than the bound."""
    seconds = np.floor(since).astype(int)
    greatest = [float(waits[seconds == second].max(initial=0.0)) for second in range(int(seconds.max()) + 1)]
    late = [second for second, wait in enumerate(greatest) if wait > BOUND_SECONDS]
    settled = late[-1] + 1 if late else 0
    result.figures |= {"greatest_by_second": greatest, "settled_after_seconds": settled}
    result.notes.append(
        f"the full load met a cold Java process: deliveries waited up to {max(greatest):.1f} s at first, and within the bound "
        f"from second {settled} on."
    )


def _percentiles(waits: Instants) -> list[float]:
    if not len(waits):
        raise BenchmarkFailed("nothing was seen in the measured time")
    return [float(value) for value in np.percentile(waits, [50, 99, 99.9, 100])]
