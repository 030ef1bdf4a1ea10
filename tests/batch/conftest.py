"""One hand-fed line per test, on the test session's Kafka, PostgreSQL and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.batch.hand_fed_line import HandFedLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def line(kafka: Any, topic: str, fresh_database_url: str, home: Path, spark: SparkSession) -> Iterator[HandFedLine]:
    fed = HandFedLine(kafka.bootstrap, topic, fresh_database_url, home, spark)
    yield fed
    fed.close()
