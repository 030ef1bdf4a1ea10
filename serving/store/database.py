"""Connections to the store, its one way to name a line's tables, and the translation of database errors.

Knows PostgreSQL; knows nothing of epochs, manifests or views.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, LiteralString

import psycopg
from psycopg import errors as pg
from psycopg import sql

from serving.errors import (
    BadRequest,
    BadSetting,
    DiskFull,
    Fenced,
    SeamError,
    SeamGap,
    StaleFrontier,
    StoreUnavailable,
    UnknownLine,
    ViewNotReady,
)
from serving.store.arrays import register_arrays

Connection = psycopg.Connection[Any]

IDLE_TIMEOUT_MS = 10_000
"""A writer that stopped between two statements loses its locks after this."""
SENDING_TIMEOUT_MS = 60_000
"""A writer that stopped in the middle of sending is not idle to the server; it loses its locks after this."""
LOCK_TIMEOUT_MS = 65_000
"""The longest: who waits for a stopped writer outlives it."""

_SCHEMA_LOCK = 0x5EA1
_LINE = re.compile(r"[a-z][a-z0-9_]{0,30}")


def connect(url: str, *, name: str = "seam") -> Connection:
    """An autocommit connection that no stopped holder of a lock can block for ever."""
    limits = f"-c lock_timeout={LOCK_TIMEOUT_MS} -c idle_in_transaction_session_timeout={IDLE_TIMEOUT_MS}"
    with translated():
        conn = psycopg.connect(
            url,
            autocommit=True,
            application_name=name,
            connect_timeout=10,
            client_encoding="utf8",
            options=f"{limits} -c timezone=UTC -c jit=off",
        )
    register_arrays(conn)
    return conn


@contextmanager
def one_round_trip(conn: Connection) -> Iterator[None]:
    """One transaction whose statements leave together; the first refusal in the server undoes it all."""
    refusal: psycopg.Error | None = None
    try:
        with conn.pipeline():
            try:
                conn.execute("BEGIN")
                conn.execute(f"SET LOCAL transaction_timeout = {SENDING_TIMEOUT_MS}")
                yield
                conn.execute("COMMIT")
            except psycopg.Error as error:
                refusal = error  # the pipeline's own end would log a second, emptier error about it
        if refusal is not None:
            raise refusal
    except BaseException as error:
        with suppress(psycopg.Error):
            conn.rollback()
        raise refusal or error from None


def schema_of(line: str) -> str:
    """The database schema of a line."""
    if not _LINE.fullmatch(line):
        raise BadRequest(f"{line!r} cannot name a line.", fix="Use 1 to 31 of a-z, 0-9 and _, beginning with a letter.", line=line)
    return f"line_{line}"


def lock_schema(conn: Connection, line: str) -> None:
    """Until the end of the transaction nobody else makes or drops tables of this line."""
    conn.execute("SELECT pg_advisory_xact_lock(%s, %s)", (_SCHEMA_LOCK, lock_key(line)))


@lru_cache(maxsize=512)
def on_line(line: str, statement: LiteralString) -> bytes:
    """The statement with `{s}` standing for the line's schema."""
    return sql.SQL(statement).format(s=sql.Identifier(schema_of(line))).as_bytes(None)


def lock_key(line: str) -> int:
    """A stable positive int4 for advisory locks of one line."""
    return zlib.crc32(line.encode()) & 0x7FFFFFFF


@contextmanager
def translated(line: str = "") -> Iterator[None]:
    """Database errors leave as errors of Seam; everything else passes."""
    try:
        yield
    except psycopg.Error as error:
        translation = _translation(error, line)
        if translation is None:
            raise
        raise translation from error


def _translation(error: psycopg.Error, line: str) -> SeamError | None:
    detail = error.diag.message_detail or ""
    message = error.diag.message_primary or str(error).strip().partition("\n")[0]
    if 'parameter "transaction_timeout"' in message:
        return BadSetting("The database is older than PostgreSQL 17.", fix="Point SEAM_DATABASE_URL to PostgreSQL 17 or newer.")
    match error.sqlstate:
        case "SEA01":
            return Fenced(f"Another speed layer took line {line} over.", untouched="Nothing was written.", fix="seam status", line=line)
        case "SEA02":
            return StaleFrontier(
                f"The frontier of line {line} is {detail}, not where this process read it.",
                untouched="Nothing was written.",
                fix="Drop the memory and start from the store: seam speed",
                line=line,
                frontier=detail,
            )
        case "SEA03":
            return SeamGap(message, untouched="Nothing was written.", fix="seam status", line=line, detail=detail)
        case "SEA04":
            return ViewNotReady(message, fix="seam nightly", line=line)
        case "53100":
            return DiskFull(
                f"The database has no room: {message}.", untouched="The transaction was undone.", fix="Free disk space, then run it again."
            )
        case "42P01" if re.search(r"\.(speed|batch)_[0-9a-f]{12}", message):
            return ViewNotReady(f"This release's form of the view is not set up on line {line}.", fix="seam up", line=line)
        case "3F000" | "42P01":
            return UnknownLine(f"Line {line} is not in this database ({message}).", fix="seam up", line=line)
    if isinstance(error, psycopg.OperationalError | pg.IdleInTransactionSessionTimeout | pg.TransactionTimeout):
        return StoreUnavailable(
            f"The database did not answer: {message}.", untouched="The transaction was undone or never began.", fix="seam status"
        )
    return None
