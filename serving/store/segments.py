"""Segments: one immutable version of one view's batch rows for one event day. Loaded unseen, named by a manifest later."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING

from psycopg import errors as pg
from psycopg import sql

from serving.errors import ChecksFailed, NightlyLocked
from serving.store.cells import batch_table, cell_columns, cell_key, names
from serving.store.csv_cells import csv_of
from serving.store.database import Connection, on_line, translated
from serving.store.records import RunId, Segment, SegmentId
from views.view import View

if TYPE_CHECKING:
    import pyarrow as pa


def load_segment(conn: Connection, line: str, run: RunId, view: View, day: date, cells: Iterable[pa.Table]) -> Segment:
    """Stores the rows of one view and day for one run; no reader sees them until a manifest names the segment.

    Guarantees: one transaction; if it dies, nothing is left. Run twice for the same run, view and day, one segment is left.
    Rows, events, checksum and digest are those of the rows as stored.
    """
    with translated(line), conn.transaction():
        _check_living(conn, line, run)
        _forget(conn, line, run, view, day)
        row = conn.execute(
            on_line(line, "INSERT INTO {s}.segments (run, fingerprint, day) VALUES (%s, %s, %s) RETURNING segment"),
            (run, view.fingerprint, day),
        ).fetchone()
        assert row is not None, "an insert returns its row"
        segment = SegmentId(row[0])
        _copy_in(conn, line, view, segment, cells)
        _check_days(conn, line, view, segment, day)
        rows, events, checksum = _totals(conn, line, view, segment)
        stored = Segment(segment, view.fingerprint, day, rows, events, checksum, _digest(conn, line, view, segment))
        conn.execute(
            on_line(
                line, "UPDATE {s}.segments SET loaded = true, rows = %s, events = %s, id_checksum = %s, digest = %s WHERE segment = %s"
            ),
            (rows, events, checksum, stored.digest, segment),
        )
    return stored


def list_segments(conn: Connection, line: str) -> list[Segment]:
    """Every loaded segment, oldest first."""
    with translated(line):
        rows = conn.execute(
            on_line(
                line, "SELECT segment, fingerprint, day, rows, events, id_checksum, digest FROM {s}.segments WHERE loaded ORDER BY segment"
            )
        ).fetchall()
    return [Segment(*row) for row in rows]


def _check_living(conn: Connection, line: str, run: RunId) -> None:
    row = conn.execute(on_line(line, "SELECT ended_at FROM {s}.runs WHERE run = %s FOR KEY SHARE"), (run,)).fetchone()
    if row is None or row[0] is not None:
        raise NightlyLocked(f"Run {run} is not under way.", untouched="Nothing was loaded.", fix="seam nightly", run=str(run))


def _forget(conn: Connection, line: str, run: RunId, view: View, day: date) -> None:
    gone = conn.execute(
        on_line(line, "DELETE FROM {s}.segments WHERE run = %s AND fingerprint = %s AND day = %s RETURNING segment"),
        (run, view.fingerprint, day),
    ).fetchall()
    for (segment,) in gone:
        conn.execute(sql.SQL("DELETE FROM {} WHERE segment = %s").format(batch_table(line, view)), (segment,))


def _copy_in(conn: Connection, line: str, view: View, segment: SegmentId, cells: Iterable[pa.Table]) -> None:
    copy = sql.SQL("COPY {} (segment, {}) FROM STDIN (FORMAT csv)").format(batch_table(line, view), names(cell_columns(view)))
    try:
        with conn.cursor() as cursor, cursor.copy(copy) as into:
            for table in cells:
                for piece in csv_of(table, view, segment):
                    into.write(piece)
    except (pg.UniqueViolation, pg.NotNullViolation) as error:
        raise ChecksFailed(
            f"The cells of {view.name} are not one row per key and window: {error.diag.message_detail}.",
            untouched="Nothing was loaded.",
            fix="seam rebuild",
            view=view.name,
        ) from error


def _check_days(conn: Connection, line: str, view: View, segment: SegmentId, day: date) -> None:
    query = sql.SQL("SELECT window_start FROM {} WHERE segment = %s AND (window_start AT TIME ZONE 'UTC')::date <> %s LIMIT 1").format(
        batch_table(line, view)
    )
    stray = conn.execute(query, (segment, day)).fetchone()
    if stray is not None:
        raise ChecksFailed(
            f"The cells of {view.name} for {day} hold a window that starts at {stray[0]}.",
            untouched="Nothing was loaded.",
            fix="seam rebuild",
            view=view.name,
        )


def _totals(conn: Connection, line: str, view: View, segment: SegmentId) -> tuple[int, int, int]:
    query = sql.SQL("SELECT count(*), coalesce(sum(events), 0)::bigint, coalesce(bit_xor(id_checksum), 0) FROM {} WHERE segment = %s")
    row = conn.execute(query.format(batch_table(line, view)), (segment,)).fetchone()
    assert row is not None, "an aggregate has one row"
    return row[0], row[1], row[2]


def _digest(conn: Connection, line: str, view: View, segment: SegmentId) -> str:
    """SHA-256 of the stored rows in order, as the database writes them. Measures by name: their order is no part of the logic."""
    values = [sql.SQL("extract(epoch FROM window_start)::bigint"), *(sql.Identifier(name) for name in sorted(c.name for c in view.columns))]
    query = sql.SQL("COPY (SELECT {} FROM {} WHERE segment = {} ORDER BY {}) TO STDOUT").format(
        sql.SQL(", ").join([*(sql.Identifier(field) for field in view.key), *values]),
        batch_table(line, view),
        sql.Literal(segment),
        names(cell_key(view)),
    )
    digest = hashlib.sha256()
    with conn.cursor() as cursor, cursor.copy(query) as rows:
        for row in rows:
            digest.update(row)
    return digest.hexdigest()
