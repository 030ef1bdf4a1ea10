"""What the steps of a night work with: the line, the store, the log and Spark, each opened when it is first needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from batch_layer.tables import Tables
from batch_layer.writer_lock import sole_writer
from infra.crash import CrashPoint
from infra.kafka_log import KafkaLog
from infra.settings import Settings
from serving.errors import UnknownLine
from serving.store import database, schema
from serving.store.database import Connection
from serving.store.records import LineInfo
from views.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SHORT_WORK_OFFSETS = 500_000


class Workplace:
    """A context manager: leaving it closes what was opened and stops Spark if it was started here."""

    def __init__(
        self,
        settings: Settings,
        bootstrap: str,
        database_url: str,
        views: Sequence[View],
        *,
        crash: CrashPoint | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        self.settings = settings
        self.views = tuple(views)
        self.crash = crash or CrashPoint()
        self._bootstrap = bootstrap
        self._database_url = database_url
        self._given_spark = spark
        self._spark = spark
        self._connection: Connection | None = None
        self._log: KafkaLog | None = None
        self._held = ExitStack()
        self._tables_held: set[str] = set()
        self._expected = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._held.close()
        if self._log is not None:
            self._log.close()
        if self._connection is not None:
            self._connection.close()
        if self._spark is not None and self._given_spark is None:
            self._spark.stop()

    @property
    def line(self) -> str:
        return self.settings.line

    @property
    def tables(self) -> Tables:
        folder = self.settings.batch_folder / self.line
        return Tables(self.settings.master_dataset_path, str(folder / "winners"), str(folder / "results"))

    @property
    def connection(self) -> Connection:
        """The store; a new connection where the last one was lost. That loses the run's lock, which does not fence."""
        if self._connection is None or self._connection.closed:
            self._connection = database.connect(self._database_url, name="seam nightly")
        return self._connection

    def hold(self, table: str) -> None:
        """Makes this process the sole writer of a table until the workplace is left."""
        if table not in self._tables_held:
            self._held.enter_context(sole_writer(self.connection, table))
            self._tables_held.add(table)

    @property
    def info(self) -> LineInfo:
        info = schema.read_line(self.connection, self.line)
        if info is None:
            raise UnknownLine(f"There is no line {self.line} in this database.", fix="seam up", line=self.line)
        return info

    @property
    def log(self) -> KafkaLog:
        if self._log is None:
            self._log = KafkaLog(self._bootstrap, self.info.topic)
        return self._log

    def expect(self, offsets: int) -> None:
        """Says how much there is to read, before Spark starts: a short piece of work and a long one need other compilers."""
        self._expected = max(self._expected, offsets)

    def spark(self) -> SparkSession:
        """The one session of this process; starting it takes seconds, so only steps that need it ask."""
        if self._spark is None:
            from infra.spark import spark_session

            short = self._expected <= SHORT_WORK_OFFSETS
            if short:
                # Most of a short run would go into optimising code that then hardly runs: measured, half its CPU time.
                os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
            self._spark = spark_session(self.settings, "seam nightly")
            self._spark.conf.set("spark.sql.adaptive.enabled", str(not short).lower())
        return self._spark
