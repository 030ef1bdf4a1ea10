"""Nightly runs: one living run per line, polite by a session lock, safe by the pointer's version."""

from __future__ import annotations

from uuid import uuid4

from serving.errors import NightlyLocked
from serving.store.database import Connection, lock_key, on_line, translated
from serving.store.generations import sealed_after
from serving.store.records import Run, RunId
from serving.store.stored_manifests import read_manifests

_RUN_LOCK = 0x5EA2
_HELD = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s AND objid = %s AND objsubid = 2
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def begin_run(conn: Connection, line: str) -> Run:
    """A new run on the current manifest; it lives as long as this connection. `NightlyLocked` while another lives.

    Guarantees: writes one row that no reader looks at. A run that dies leaves nothing that stands in the next one's way.
    """
    with translated(line):
        mine = conn.info.backend_pid
        if _holder(conn, line) != mine:
            row = conn.execute("SELECT pg_try_advisory_lock(%s, %s)", (_RUN_LOCK, lock_key(line))).fetchone()
            if row is None or not row[0]:
                raise NightlyLocked(
                    f"Another run works on line {line}.", untouched="Nothing was started.", fix="Wait for it to end: seam status", line=line
                )
        run = RunId(uuid4())
        with conn.transaction():
            conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            base, version = next((m, version) for m, version in read_manifests(conn, line, None) if m.current)
            conn.execute(
                on_line(line, "INSERT INTO {s}.runs (run, base, pointer_version) VALUES (%s, %s, %s)"), (run, base.manifest, version)
            )
            return Run(run, base, version, sealed_after(conn, line, base.generation))


def end_run(conn: Connection, line: str, run: RunId) -> None:
    """Ends a run and frees its lock, published or not. Closing the connection does the same."""
    with translated(line):
        conn.execute(on_line(line, "UPDATE {s}.runs SET ended_at = coalesce(ended_at, now()) WHERE run = %s"), (run,))
        if _holder(conn, line) == conn.info.backend_pid:
            conn.execute("SELECT pg_advisory_unlock(%s, %s)", (_RUN_LOCK, lock_key(line)))


def living_run(conn: Connection, line: str) -> tuple[RunId, int] | None:
    """The run that holds the lock now, with the manifest it builds on."""
    if _holder(conn, line) is None:
        return None
    row = conn.execute(on_line(line, "SELECT run, base FROM {s}.runs WHERE ended_at IS NULL ORDER BY began_at DESC LIMIT 1")).fetchone()
    return (RunId(row[0]), row[1]) if row else None


def _holder(conn: Connection, line: str) -> int | None:
    row = conn.execute(_HELD, (_RUN_LOCK, lock_key(line))).fetchone()
    return row[0] if row else None
