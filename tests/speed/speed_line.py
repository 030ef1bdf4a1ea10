"""A line on real Kafka and PostgreSQL for one test: send deliveries, run lives of the speed layer, compare with the recount."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from infra.settings import Settings, load_settings
from serving.audit.recount import Delivery
from serving.audit.run import AuditReport, audit
from serving.audit.sources import read_topic
from serving.store import epochs
from serving.store.database import connect
from serving.store.schema import read_line
from serving.store.vectors import OffsetVector
from speed_layer.run import SpeedLayer, live
from speed_layer.worker import Committed
from views.registry import ALL_VIEWS

DAY = datetime(2026, 3, 1, tzinfo=UTC)
PROJECT = Path(__file__).resolve().parents[2]

Sending = tuple[int, bytes | None]
"""The partition to send to, and the value."""

POISON: tuple[bytes | None, ...] = (
    None,
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"transaction_id": "t"} trailing',
    b'{"transaction_id": "\\ud800"}',
    b'{"transaction_id": 7, "amount_cents": 1e400}',
    b"[" * 5_000,
    b'{"transaction_id": "' + b"x" * 5_000_000 + b'"}',
)


def event(number: int, *, at: datetime | None = None, cents: int | None = None) -> bytes:
    fields = {
        "transaction_id": f"t-{number}",
        "event_time": (at or DAY + timedelta(seconds=number % 7_200)).isoformat(),
        "account_id": f"a-{number % 13}",
        "merchant_id": f"m-{number % 5}",
        "amount_cents": number * 3 - 700 if cents is None else cents,
        "currency": ("EUR", "USD")[number % 2],
        "kind": "purchase",
    }
    return json.dumps(fields).encode()


def mixed(first: int, count: int, *, partitions: int = 4, seed: int = 1) -> list[Sending]:
    """New events over all partitions; every fifth is sent again, near or far, to any partition."""
    random = Random(seed)
    sent: list[Sending] = []
    for number in range(first, first + count):
        sent.append((random.randrange(partitions), event(number)))
        if number % 5 == 0:
            sent.append((random.randrange(partitions), event(random.randrange(max(0, number - 400), number + 1))))
    return sent


@dataclass
class SpeedLine:
    settings: Settings
    bootstrap: str
    database_url: str
    spark: SparkSession | None = None
    committed: list[Committed] = field(default_factory=list)

    @classmethod
    def of(cls, home: Path, bootstrap: str, database_url: str, topic: str, spark: SparkSession | None = None, **changes: Any) -> SpeedLine:
        changes = {"trigger_ms": 50, "max_events_per_epoch": 400, "source_interval_ms": 200} | changes
        settings = load_settings(
            home=home, topic=topic, spark_master="local[2]", kafka_bootstrap=bootstrap, database_url=database_url, **changes
        )
        return cls(settings, bootstrap, database_url, spark)

    def send(self, deliveries: Iterable[Sending], **producer_settings: object) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "message.max.bytes": 8 << 20, "linger.ms": 5, **producer_settings})
        for partition, value in deliveries:
            producer.produce(self.settings.topic, value, partition=partition)
        assert producer.flush(30) == 0

    def layer(self, **options: Any) -> SpeedLayer:
        assert self.spark is not None, "this line was made without a Spark session"
        spark = self.spark
        return SpeedLayer(self.settings, self.bootstrap, self.database_url, session=lambda: spark, watch=self.committed.append, **options)

    def catch_up(self, **options: Any) -> list[Committed]:
        """One life up to the present end of the log; what it committed."""
        before = len(self.committed)
        # Taking over spares the wait that tells a life that ended a moment ago from one that goes on.
        live(self.layer(until_caught_up=True, **{"take_over": True, **options}))
        return self.committed[before:]

    def running(self, **options: Any) -> RunningLife:
        return RunningLife(self, self.layer(**options))

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(connect(self.database_url)) as conn:
            cursor = conn.execute(statement.replace("{s}", f"line_{self.settings.line}").encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def frontier(self) -> OffsetVector:
        """Where the line is; at the start of everything before the first life made it."""
        with closing(connect(self.database_url)) as conn:
            if read_line(conn, self.settings.line) is None:
                return OffsetVector()
            return epochs.read_frontier(conn, self.settings.line).until

    @property
    def source_position(self) -> OffsetVector | None:
        with closing(connect(self.database_url)) as conn:
            return epochs.read_source_position(conn, self.settings.line)

    def move_source_position(self, position: OffsetVector) -> None:
        with closing(connect(self.database_url)) as conn:
            epochs.store_source_position(conn, self.settings.line, epochs.take_over(conn, self.settings.line), position)

    def log(self, since: OffsetVector, until: OffsetVector) -> Iterable[Delivery]:
        return read_topic(self.bootstrap, self.settings.topic, since, until)

    def audited(self, log: Callable[[OffsetVector, OffsetVector], Iterable[Delivery]] | None = None) -> AuditReport:
        with closing(connect(self.database_url)) as conn:
            return audit(conn, self.settings.line, ALL_VIEWS, log or self.log)

    def process(self, *arguments: str, crash_at: str = "") -> subprocess.Popen[bytes]:
        """`seam speed` as a process of its own, its output in the home."""
        return self.process_of("-m", "flows.cli", "speed", *arguments, crash_at=crash_at)

    def process_of(self, *arguments: str, crash_at: str = "") -> subprocess.Popen[bytes]:
        ours = {
            "SEAM_HOME": str(self.settings.home),
            "SEAM_TOPIC": self.settings.topic,
            "SEAM_KAFKA_BOOTSTRAP": self.bootstrap,
            "SEAM_DATABASE_URL": self.database_url,
            "SEAM_SPARK_MASTER": self.settings.spark_master,
            "SEAM_TRIGGER_MS": str(self.settings.trigger_ms),
            "SEAM_MAX_EVENTS_PER_EPOCH": str(self.settings.max_events_per_epoch),
            "SEAM_SOURCE_INTERVAL_MS": str(self.settings.source_interval_ms),
            "SEAM_CRASH_AT": crash_at,
            "PREFECT_HOME": str(self.settings.home / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            # A short life gains nothing from the optimising compiler.
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with self.log_file.open("ab") as log:
            return subprocess.Popen([sys.executable, *arguments], cwd=PROJECT, env={**os.environ, **ours}, stdout=log, stderr=log)

    @property
    def log_file(self) -> Path:
        self.settings.home.mkdir(parents=True, exist_ok=True)
        return self.settings.home / "speed.log"


class RunningLife:
    """One life on a thread; leaving the block asks it to stop and raises what it died of."""

    def __init__(self, line: SpeedLine, layer: SpeedLayer) -> None:
        self._layer = layer
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._line = line

    def _run(self) -> None:
        try:
            live(self._layer)
        except BaseException as failure:
            self.failure = failure

    def __enter__(self) -> RunningLife:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._layer.stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def wait_for_end(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()

    def reach(self, end: OffsetVector, seconds: float = 120) -> None:
        wait_until(lambda: self._line.frontier.reaches(end) or self.failure is not None, seconds)
        assert self.failure is None, self.failure


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def end_of(line: SpeedLine) -> OffsetVector:
    from infra.kafka_log import KafkaLog

    with KafkaLog(line.bootstrap, line.settings.topic) as log:
        return log.end()


def exit_code(process: subprocess.Popen[bytes], log: Path, seconds: float = 180) -> int:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        raise AssertionError(f"still running after {seconds} s:\n{log.read_text()[-4000:]}") from None


def totals(committed: Sequence[Committed]) -> tuple[int, int, int, int]:
    counts = [each.counts for each in committed]
    return (
        sum(each.read for each in counts),
        sum(each.counted for each in counts),
        sum(each.duplicates for each in counts),
        sum(each.quarantined for each in counts),
    )
