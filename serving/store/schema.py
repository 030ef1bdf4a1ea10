"""Makes a line and the tables of its views; tells which line is stored and whether this release can read it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from psycopg.types.json import Jsonb

from serving.errors import StateTooNew
from serving.store import ddl
from serving.store.cells import table_statements
from serving.store.database import Connection, lock_schema, on_line, schema_of, translated
from serving.store.records import LineInfo
from serving.store.sql_views import sql_view_statements
from serving.store.vectors import OffsetVector
from views.view import View


def create_line(conn: Connection, info: LineInfo, views: Sequence[View]) -> LineInfo:
    """The line as stored, made if it is not there. The origin is set once: a second call changes nothing.

    Guarantees: one transaction; run twice, or by two processes at once, it leaves one line.
    """
    with translated(info.name), conn.transaction():
        lock_schema(conn, info.name)
        stored = read_line(conn, info.name)
        if stored is None:
            for statements in (ddl.LINE_TABLES, ddl.HOLD_FRONTIER, ddl.SEAM_STATE):
                conn.execute(on_line(info.name, statements))
            first = {
                "topic": info.topic,
                "topic_id": info.topic_id,
                "origin": Jsonb(info.origin.to_json()),
                "state_format": ddl.STATE_FORMAT,
            }
            for statement in ddl.FIRST_ROWS.split(";"):
                conn.execute(on_line(info.name, statement), first)
            stored = info
        ensure_views(conn, info.name, views)
    return stored


def read_line(conn: Connection, line: str) -> LineInfo | None:
    """The stored line, None if there is none; `StateTooNew` if a newer release wrote it."""
    with translated(line):
        found = conn.execute("SELECT to_regclass(%s)", (f"{schema_of(line)}.line",)).fetchone()
        if found is None or found[0] is None:
            return None
        row = conn.execute(on_line(line, "SELECT topic, topic_id, origin, state_format FROM {s}.line")).fetchone()
    if row is None:
        return None
    topic, topic_id, origin, state_format = row
    if state_format > ddl.STATE_FORMAT:
        raise StateTooNew(
            f"Line {line} is stored in format {state_format}; this release knows formats up to {ddl.STATE_FORMAT}.",
            untouched="Nothing was read or written.",
            fix="Run the newer release that wrote it.",
            line=line,
            stored=state_format,
            known=ddl.STATE_FORMAT,
        )
    return LineInfo(line, topic, topic_id, OffsetVector.from_json(origin))


def ensure_views(conn: Connection, line: str, views: Sequence[View]) -> None:
    """Every view has its tables and its SQL view; one whose logic changed gets new ones.

    Guarantees: one transaction; without a change it writes nothing and takes no lock a reader could feel.
    """
    with translated(line):
        missing = _missing(conn, line, views)
        if not missing:
            return
        with conn.transaction():
            lock_schema(conn, line)
            for view in _missing(conn, line, views):
                for statement in (*table_statements(line, view), *sql_view_statements(line, view)):
                    conn.execute(statement)
                conn.execute(on_line(line, _REMEMBER), (view.name, view.fingerprint, _declaration(view)))


_REMEMBER = """
INSERT INTO {s}.views (name, fingerprint, declaration) VALUES (%s, %s, %s)
ON CONFLICT (name) DO UPDATE SET fingerprint = excluded.fingerprint, declaration = excluded.declaration
"""


def _missing(conn: Connection, line: str, views: Sequence[View]) -> list[View]:
    known = {row[0]: row[1] for row in conn.execute(on_line(line, "SELECT name, declaration FROM {s}.views"))}
    return [view for view in views if known.get(view.name) != _declaration(view)]


def _declaration(view: View) -> str:
    """What tables and SQL view are made of: the fingerprint, and the order of the shown columns."""
    return json.dumps({"fingerprint": view.fingerprint, "key": view.key, "measures": list(view.measures)})
