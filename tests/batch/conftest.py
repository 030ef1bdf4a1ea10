"""One hand-fed line per test, on the test session's Kafka, PostgreSQL and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.register_assert_rewrite("tests.batch.hand_fed_line")

from tests.batch.hand_fed_line import DAY_ONE, HandFedLine, day_of_events  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def line(kafka: Any, topic: str, fresh_database_url: str, home: Path, spark: SparkSession) -> Iterator[HandFedLine]:
    fed = HandFedLine(kafka.bootstrap, topic, fresh_database_url, home, spark)
    yield fed
    fed.close()


@pytest.fixture(scope="module")
def fallen_url(database_url: str) -> Iterator[str]:
    import psycopg

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE fallen STRATEGY FILE_COPY")
        yield f"{database_url.rpartition('/')[0]}/fallen"
        connection.execute("DROP DATABASE fallen WITH (FORCE)")


@pytest.fixture(scope="module")
def fallen(kafka: Any, fallen_url: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandFedLine]:
    """One line, already published once, that a whole module's nights fall on: its history grows from test to test."""
    fed = HandFedLine(kafka.bootstrap, kafka.new_topic(), fallen_url, tmp_path_factory.mktemp("fallen"), spark)
    fed.send(day_of_events(0, 60, DAY_ONE))
    fed.speed()
    fed.night()
    yield fed
    fed.close()
