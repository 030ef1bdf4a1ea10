from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pytest

from serving.store import schema
from serving.store.database import Connection, connect
from serving.store.records import LineInfo
from serving.store.vectors import OffsetVector
from tests.store.tape import Tape
from views.registry import ALL_VIEWS

LINE = "main"


@pytest.fixture(scope="session")
def store_database_url(database_url: str) -> str:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE store")
    return f"{database_url.rpartition('/')[0]}/store"


@pytest.fixture
def store_url(store_database_url: str) -> str:
    """A database without any line: emptied, as that takes a fraction of the time of making one."""
    with psycopg.connect(store_database_url, autocommit=True) as connection:
        for schema_name in ("line_main", "line_second", "seam", "seam_second"):
            connection.execute(f"DROP SCHEMA IF EXISTS {schema_name} CASCADE")
    return store_database_url


@pytest.fixture
def conn(store_url: str) -> Iterator[Connection]:
    """A connection to a database with the line `main` on it."""
    with connect(store_url) as connection:
        schema.create_line(connection, LineInfo(LINE, "transactions", "topic-1", OffsetVector()), ALL_VIEWS)
        yield connection


@pytest.fixture
def tape() -> Tape:
    tape = Tape(random.Random(1))
    tape.produce(120)
    return tape
