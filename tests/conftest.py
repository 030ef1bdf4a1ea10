"""What tests share: one embedded PostgreSQL, one embedded Kafka and one Spark session, each started when first asked for."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from infra.kafka_broker import KafkaBroker
from infra.kafka_log import ensure_topic
from infra.postgres import Postgres
from infra.settings import Settings, load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Kafka:
    bootstrap: str

    def new_topic(self, partitions: int = 4) -> str:
        """A topic of its own for one test."""
        topic = f"t{next(_numbers)}"
        ensure_topic(self.bootstrap, topic, partitions)
        return topic


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for a Java process is not fast, also where nobody marked it."""
    for item in items:
        for fixture, marker in (("kafka", "stack"), ("spark", "spark")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


@contextmanager
def _temporary_home(part: str) -> Iterator[Settings]:
    # Not pytest's folder: that one is closed to the account that PostgreSQL runs as when the tests run as root.
    folder = Path(tempfile.mkdtemp(prefix=f"seam-{part}-"))
    try:
        yield load_settings(home=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home for one test."""
    with _temporary_home("home") as settings:
        yield settings.home


@pytest.fixture(scope="session")
def database_url() -> Iterator[str]:
    """The embedded PostgreSQL of this test session."""
    with _temporary_home("postgres") as settings:
        server = Postgres.of(settings)
        server.start()
        try:
            yield server.url
        finally:
            server.stop()


@pytest.fixture
def fresh_database_url(database_url: str) -> Iterator[str]:
    """An empty database for one test."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY")
        yield f"{database_url.rpartition('/')[0]}/{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """The embedded Kafka of this test session."""
    with _temporary_home("kafka") as settings:
        broker = KafkaBroker.of(settings)
        broker.start()
        try:
            yield Kafka(broker.bootstrap)
        finally:
            broker.stop()


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return kafka.new_topic()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of this test session: two cores, Delta, the Kafka source."""
    from infra.spark import spark_session

    with _temporary_home("spark") as settings:
        session = spark_session(settings.model_copy(update={"spark_master": "local[2]"}), "tests")
        yield session
        session.stop()
