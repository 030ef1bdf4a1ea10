"""A line with a tape in a database of its own, and the HTTP interface over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from served_api import Api, running_api
from served_tape import Tape, random_events


@pytest.fixture
def tape(fresh_database_url: str) -> Iterator[Tape]:
    """Two epochs below the seam, two above."""
    tape = Tape(fresh_database_url)
    tape.commit(random_events(1, 300))
    tape.commit(random_events(2, 200, first=300))
    tape.publish()
    tape.commit(random_events(3, 150, first=500))
    tape.commit(random_events(4, 50, first=650))
    yield tape
    tape.close()


@pytest.fixture
def api(tape: Tape, tmp_path: Path) -> Iterator[Api]:
    with running_api(tape.url, tmp_path / "secrets") as running:
        yield running
