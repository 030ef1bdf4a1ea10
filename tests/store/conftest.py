from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from serving.store import schema
from serving.store.database import Connection, connect
from serving.store.records import LineInfo
from serving.store.vectors import OffsetVector
from tests.store.tape import Tape
from views.registry import ALL_VIEWS

LINE = "main"


@pytest.fixture
def conn(fresh_database_url: str) -> Iterator[Connection]:
    """A connection to a database with the line `main` on it."""
    with connect(fresh_database_url) as connection:
        schema.create_line(connection, LineInfo(LINE, "transactions", "topic-1", OffsetVector()), ALL_VIEWS)
        yield connection


@pytest.fixture
def tape() -> Tape:
    tape = Tape(random.Random(1))
    tape.produce(120)
    return tape
