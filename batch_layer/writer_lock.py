"""One writer of a Delta table at a time. Delta on a local disk loses commits of two Java processes, so it is asked first."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

from serving.errors import NightlyLocked
from serving.store.database import Connection, translated

_LOCK: LiteralString = "SELECT pg_try_advisory_lock(hashtextextended('seam writer ' || %s, 0))"
_UNLOCK: LiteralString = "SELECT pg_advisory_unlock(hashtextextended('seam writer ' || %s, 0))"


@contextmanager
def sole_writer(connection: Connection, table: str) -> Iterator[None]:
    """Holds the right to write `table`, or raises `NightlyLocked` at once.

    Guarantees: freed when the block ends, when the process dies and when the connection drops. The database refuses
    writers on other machines, a lock file beside a local table those with another database. Neither fences: the table's
    own transaction version does.
    """
    with _locked_file(table):
        if not _asked(connection, _LOCK, table):
            raise _locked(table)
        try:
            yield
        finally:
            if not connection.closed:
                _asked(connection, _UNLOCK, table)


def _asked(connection: Connection, question: LiteralString, table: str) -> bool:
    with translated():
        row = connection.execute(question, (table,)).fetchone()
    return bool(row and row[0])


@contextmanager
def _locked_file(table: str) -> Iterator[None]:
    if "://" in table:
        yield
        return
    lock = Path(f"{table.removeprefix('file:').rstrip('/')}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _locked(table) from None
        yield


def _locked(table: str) -> NightlyLocked:
    return NightlyLocked(
        f"Another process is writing {table}.",
        untouched="Nothing was written.",
        fix="Wait until it is done; `seam status` shows what is running.",
        table=table,
    )
