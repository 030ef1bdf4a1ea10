"""A line with a tape in a database of its own, and the HTTP interface over it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.serving.served_api import Api, running_api
from tests.serving.served_tape import Tape, random_events


def committed(url: str) -> Tape:
    """Two epochs below the seam, two above."""
    tape = Tape(url)
    tape.commit(random_events(1, 300))
    tape.commit(random_events(2, 200, first=300))
    tape.publish()
    tape.commit(random_events(3, 150, first=500))
    tape.commit(random_events(4, 50, first=650))
    return tape


@pytest.fixture
def tape(fresh_database_url: str) -> Iterator[Tape]:
    """For tests that change the line."""
    tape = committed(fresh_database_url)
    yield tape
    tape.close()


@pytest.fixture
def api(tape: Tape, tmp_path: Path) -> Iterator[Api]:
    with running_api(tape.url, tmp_path / "secrets") as running:
        yield running


@pytest.fixture(scope="session")
def read_tape(database_url: str) -> Iterator[Tape]:
    """For tests that only read: one line for all of them."""
    name = f"read_{secrets.token_hex(4)}"
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    tape = committed(f"{database_url.rpartition('/')[0]}/{name}")
    yield tape
    tape.close()


@pytest.fixture(scope="session")
def read_api(read_tape: Tape, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_api(read_tape.url, tmp_path_factory.mktemp("secrets")) as running:
        yield running
