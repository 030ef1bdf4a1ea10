"""Generations: runs of epochs between two cuts. Sealing ends one and opens the next; the speed layer never stops."""

from __future__ import annotations

from typing import Any, LiteralString

from serving.store.database import Connection, on_line, translated
from serving.store.records import Generation
from serving.store.vectors import OffsetVector


def seal(conn: Connection, line: str) -> Generation:
    """The newest sealed generation, after sealing the open one at the frontier unless it is empty.

    Guarantees: one transaction that holds the frontier, so the cut is an epoch edge. Run twice with nothing committed
    in between, it seals once; if it dies, nothing is sealed.
    """
    with translated(line), conn.transaction():
        row = conn.execute(on_line(line, "SELECT generation, until FROM {s}.frontier FOR UPDATE")).fetchone()
        assert row is not None, "a line has one frontier"
        generation = row[0]
        sealed = conn.execute(
            on_line(
                line, "UPDATE {s}.generations SET cut = until WHERE generation = %s AND cut IS NULL AND until <> start RETURNING until"
            ),
            (generation,),
        ).fetchone()
        if sealed is not None:
            conn.execute(on_line(line, _OPEN_NEXT), {"sealed": generation})
            conn.execute(on_line(line, "UPDATE {s}.frontier SET generation = %s"), (generation + 1,))
        newest = conn.execute(on_line(line, _SEALED + " ORDER BY generation DESC LIMIT 1")).fetchone()
    return _generation(newest)


_OPEN_NEXT = """
INSERT INTO {s}.generations (generation, start, until, watermark)
SELECT generation + 1, cut, cut, watermark FROM {s}.generations WHERE generation = %(sealed)s
"""
_GENERATIONS: LiteralString = "SELECT generation, start, cut, watermark, read FROM {s}.generations"
_SEALED: LiteralString = _GENERATIONS + " WHERE cut IS NOT NULL"


def list_generations(conn: Connection, line: str) -> list[Generation]:
    """All generations, oldest first; the last is the open one. Generation 0 is the empty one before the origin."""
    with translated(line):
        rows = conn.execute(
            on_line(line, "SELECT generation, start, cut, watermark, read FROM {s}.generations ORDER BY generation")
        ).fetchall()
    return [_generation(row) for row in rows]


def sealed_after(conn: Connection, line: str, generation: int) -> tuple[Generation, ...]:
    """The sealed generations above one, oldest first."""
    rows = conn.execute(on_line(line, _SEALED + " AND generation > %s ORDER BY generation"), (generation,)).fetchall()
    return tuple(_generation(row) for row in rows)


def _generation(row: Any) -> Generation:
    generation, start, cut, watermark, read = row
    ended = OffsetVector.from_json(cut) if cut is not None else None
    return Generation(generation, OffsetVector.from_json(start), ended, watermark, read)
