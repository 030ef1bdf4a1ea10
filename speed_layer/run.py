"""One life of the speed layer, from its token to its last commit; and as many lives as retryable failures need.

Spark lifts, the worker folds and commits, the main thread watches. Nothing here decides what counts.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from infra.crash import CrashPoint
from infra.kafka_log import KafkaLog, check_log
from infra.settings import Settings
from serving.errors import OffsetsExpired, SeamError
from serving.store import epochs
from serving.store.database import Connection, connect
from serving.store.records import LineInfo
from serving.store.vectors import OffsetVector
from speed_layer.fold_epoch import Reading
from speed_layer.from_master import master_micro_batches
from speed_layer.pulse import Pulse
from speed_layer.reread import read_ids_again
from speed_layer.start import Start, first_offsets, open_line, refuse_second, require_same_topic, start_from_store
from speed_layer.stream import Source, Stream
from speed_layer.worker import Committed, EpochWorker, Writer
from views.registry import ALL_VIEWS
from views.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("seam.speed")

_LOOK_EVERY_SECONDS = 0.1
_MOST_FAILURES = 8
"""Failures in a row, without an epoch between them, after which a run up to a given end gives up."""


@dataclass(frozen=True, slots=True)
class SpeedLayer:
    """What to run. The entry point builds it once."""

    settings: Settings
    kafka_bootstrap: str
    database_url: str
    session: Callable[[], SparkSession]
    """Gives the Spark session; asked again after a failure, as the one before may be dead."""
    until_caught_up: bool = False
    take_over: bool = False
    from_master: bool = False
    views: Sequence[View] = ALL_VIEWS
    stop: threading.Event = field(default_factory=threading.Event)
    crash: CrashPoint = field(default_factory=CrashPoint)
    watch: Callable[[Committed], None] = lambda committed: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


def keep_running(layer: SpeedLayer) -> None:
    """Run until asked to stop or caught up; start again from the store after a retryable failure, later each time.

    Guarantees: each life takes the line over anew and reads everything again, so a failed or unknown commit is never
    taken for either. Being fenced, and every failure that is not retryable, ends it.
    """
    failures = 0

    def watch(committed: Committed) -> None:
        nonlocal failures
        failures = 0
        layer.watch(committed)

    life = replace(layer, watch=watch)
    while not layer.stop.is_set():
        try:
            live(life)
            return
        except SeamError as failure:
            failures += 1
            if not failure.retryable or (layer.until_caught_up and failures > _MOST_FAILURES):
                raise
            pause = min(30.0, 0.5 * 2 ** min(failures, 6)) * random.uniform(0.5, 1.0)
            log.warning("starting again failure=%s seconds=%.1f what=%s", failure.code, pause, failure.what)
            layer.stop.wait(pause)
            life = replace(life, take_over=False)  # whoever took over meanwhile keeps the line


def live(layer: SpeedLayer) -> None:
    """One life: count until asked to stop or caught up.

    Guarantees: on return all that was read is committed and the source position is at the frontier, so the next life
    replays nothing. If it raises, or dies anywhere, the store holds whole epochs only.
    """
    line = layer.settings.line
    with ExitStack() as stack:
        conn = stack.enter_context(connect(layer.database_url, name="seam speed"))
        kafka = stack.enter_context(KafkaLog(layer.kafka_bootstrap, layer.settings.topic))
        goal = kafka.end() if layer.until_caught_up else None
        info = open_line(conn, kafka, line, layer.views)
        if not layer.take_over:
            refuse_second(conn, line)
        spark = layer.session()
        start = start_from_store(conn, line, layer.views, layer.settings, layer.now())
        pulse = stack.enter_context(Pulse(layer.database_url, line, start.token))
        worker = _worker(layer, conn, start, lambda: require_same_topic(kafka, info))
        stack.callback(worker.close)
        _check(layer, spark, kafka, info, conn, worker)
        _read_again(layer, spark, kafka, start)
        _count(layer, spark, kafka, start, worker, pulse, goal)
        worker.finish()


def _worker(layer: SpeedLayer, conn: Connection, start: Start, same_log: Callable[[], None]) -> EpochWorker:
    slack = timedelta(seconds=layer.settings.slack_seconds)
    return EpochWorker(
        Writer(conn, layer.settings.line, start.token, layer.views),
        Reading.at(start.frontier, slack),
        start.seen,
        slack=slack,
        source_interval=timedelta(milliseconds=layer.settings.source_interval_ms),
        same_log=same_log,
        crash=layer.crash,
        watch=layer.watch,
        now=layer.now,
    )


def _check(layer: SpeedLayer, spark: SparkSession, kafka: KafkaLog, info: LineInfo, conn: Connection, worker: EpochWorker) -> None:
    """The log is still the same and holds all that is to be read; what it lost comes from the master dataset, if asked to."""
    while not layer.stop.is_set():
        try:
            for warning in check_log(kafka, info, epochs.read_frontier(conn, info.name)):
                log.warning("%s", warning)
            return
        except OffsetsExpired:
            if not layer.from_master:
                raise
        _fill(layer, spark, info, kafka.beginning(), worker)


def _fill(layer: SpeedLayer, spark: SparkSession, info: LineInfo, until: OffsetVector, worker: EpochWorker) -> None:
    settings = layer.settings
    table, most = settings.master_dataset_path, settings.max_events_per_epoch
    log.info("reading from the master dataset table=%s from=%s until=%s", table, worker.reading.until, until)
    for lifted, end in master_micro_batches(spark, table, info.topic_id, worker.reading.until, until, layer.views, most):
        worker.submit(lifted, end)
        if layer.stop.is_set():
            break
    worker.settle()


def _read_again(layer: SpeedLayer, spark: SparkSession, kafka: KafkaLog, start: Start) -> None:
    if start.other_rules_from is None:
        return
    begin, until = start.other_rules_from.union(kafka.beginning()), start.frontier.until
    log.info("event rules changed, reading ids again from=%s until=%s", begin, until)
    topic, partitions = layer.settings.topic, kafka.partitions()
    added = read_ids_again(spark, layer.kafka_bootstrap, topic, begin, until, partitions, start.seen, layer.now())
    log.info("ids read again added=%d seen_ids=%d", added, len(start.seen))


def _count(
    layer: SpeedLayer, spark: SparkSession, kafka: KafkaLog, start: Start, worker: EpochWorker, pulse: Pulse, goal: OffsetVector | None
) -> None:
    def ended() -> bool:
        return layer.stop.is_set() or (goal is not None and worker.reading.until.reaches(goal))

    if ended():
        return
    source = Source(layer.kafka_bootstrap, layer.settings.topic, first_offsets(kafka, start.source_position, worker.reading.until))
    with Stream(spark, source, layer.views, worker, layer.settings, layer.crash) as stream:
        while not ended():
            layer.stop.wait(_LOOK_EVERY_SECONDS)
            pulse.check()
            worker.check()
            stream.check()
