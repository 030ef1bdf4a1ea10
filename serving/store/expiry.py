"""Expiry: removes what no retained manifest, no living run and no horizon needs. Deletes, never truncates."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from psycopg import sql

from serving.store.database import Connection, lock_schema, on_line, schema_of, translated
from serving.store.records import Expired, ManifestId, SegmentId
from serving.store.runs import living_run
from serving.store.stored_manifests import hold_pointer
from views.view import Fingerprint


def expire(conn: Connection, line: str, *, retained: int, horizon: timedelta, most_ids: int | None = None) -> Expired:
    """Keeps the newest `retained` manifests, the current one and a living run's base; removes what only others needed.

    Seen ids are kept for the horizon, and of those the newest `most_ids`: as `load_seen` reads them.

    Guarantees: one transaction under the pointer's lock, so nothing is published or rolled back meanwhile; readers and
    the speed layer go on. If it dies, nothing is removed; run twice, the second finds nothing to do.
    """
    with translated(line), conn.transaction():
        pointed, _, _ = hold_pointer(conn, line)
        living = living_run(conn, line)
        keep = [pointed, *([living[1]] if living else [])]
        gone = Expired(manifests=_manifests(conn, line, retained, keep))
        gone = _generations(conn, line, gone)
        gone = _segments(conn, line, str(living[0]) if living else None, gone)
        gone = _epochs(conn, line, horizon, most_ids, gone)
        return _tables(conn, line, gone)


def _manifests(conn: Connection, line: str, retained: int, keep: list[int]) -> tuple[ManifestId, ...]:
    rows = conn.execute(on_line(line, _DROP_MANIFESTS), {"retained": max(1, retained), "keep": keep}).fetchall()
    return tuple(sorted(ManifestId(row[0]) for row in rows))


_DROP_MANIFESTS = """
DELETE FROM {s}.manifests WHERE manifest <> ALL (%(keep)s)
    AND manifest NOT IN (SELECT manifest FROM {s}.manifests ORDER BY manifest DESC LIMIT %(retained)s) RETURNING manifest
"""


def _generations(conn: Connection, line: str, gone: Expired) -> Expired:
    """Speed rows go where every retained manifest ends at or after their generation."""
    rows = conn.execute(on_line(line, _EXPIRE_GENERATIONS)).fetchall()
    speed_rows = 0
    for generation, touched in rows:
        for fingerprint in touched:
            speed_rows += _delete(conn, line, f"speed_{fingerprint}", "generation", [generation])
    return replace(gone, generations=tuple(sorted(row[0] for row in rows)), speed_rows=speed_rows)


_EXPIRE_GENERATIONS = """
UPDATE {s}.generations SET rows_expired = true
WHERE NOT rows_expired AND generation <= (SELECT min(generation) FROM {s}.manifests) RETURNING generation, touched
"""


def _segments(conn: Connection, line: str, living: str | None, gone: Expired) -> Expired:
    rows = conn.execute(on_line(line, _DROP_SEGMENTS), {"living": living}).fetchall()
    by_fingerprint: dict[str, list[int]] = {}
    for segment, fingerprint in rows:
        by_fingerprint.setdefault(fingerprint, []).append(segment)
    batch_rows = sum(_delete(conn, line, f"batch_{fingerprint}", "segment", ids) for fingerprint, ids in by_fingerprint.items())
    return replace(gone, segments=tuple(sorted(SegmentId(row[0]) for row in rows)), batch_rows=batch_rows)


_DROP_SEGMENTS = """
DELETE FROM {s}.segments g WHERE g.run IS DISTINCT FROM %(living)s::uuid
    AND NOT EXISTS (SELECT FROM {s}.manifest_segments n WHERE n.segment = g.segment) RETURNING segment, fingerprint
"""


def _delete(conn: Connection, line: str, table: str, part: str, values: list[int]) -> int:
    name = sql.Identifier(schema_of(line), table)
    found = conn.execute("SELECT to_regclass(%s)", (f"{schema_of(line)}.{table}",)).fetchone()
    if found is None or found[0] is None:
        return 0
    return conn.execute(sql.SQL("DELETE FROM {} WHERE {} = ANY (%s)").format(name, sql.Identifier(part)), (values,)).rowcount


def _epochs(conn: Connection, line: str, horizon: timedelta, most_ids: int | None, gone: Expired) -> Expired:
    """Behind the horizon and every retained cut the packed ids go, and the epochs of a generation become one range."""
    seen = conn.execute(on_line(line, _DROP_SEEN), {"horizon": horizon, "most": most_ids}).rowcount
    conn.execute(on_line(line, _MERGE_EPOCHS), {"horizon": horizon})
    merged = conn.execute(on_line(line, _DROP_MERGED)).rowcount
    return replace(gone, seen_epochs=seen, epochs_merged=merged)


# Old by log time is what is old for the log as far as it was read: after a long stop of the speed layer the clock is far
# ahead of the next delivery, which may repeat an id that the clock alone would let go.
_DROP_SEEN = """
WITH horizon AS (
    SELECT least(now(), watermark) - %(horizon)s AS log_time, now() - %(horizon)s AS commit_time FROM {s}.frontier
), kept AS (
    SELECT s.epoch, sum(s.ids) OVER (ORDER BY s.epoch DESC) - s.ids AS newer FROM {s}.seen_ids s CROSS JOIN horizon h
    WHERE s.newest_log_time >= h.log_time OR s.committed_at >= h.commit_time
)
DELETE FROM {s}.seen_ids s WHERE s.generation <= (SELECT min(generation) FROM {s}.manifests)
    AND NOT EXISTS (SELECT FROM kept k WHERE k.epoch = s.epoch AND coalesce(k.newer < %(most)s::bigint, true))
"""
_MERGE_EPOCHS = """
WITH old AS (
    SELECT e.generation, min(e.first_epoch) AS first_epoch, max(e.epoch) AS epoch, sum(e.read)::bigint AS read,
        sum(e.counted)::bigint AS counted,
        sum(e.duplicates)::bigint AS duplicates, sum(e.quarantined)::bigint AS quarantined, sum(e.late)::bigint AS late,
        bit_xor(e.id_checksum) AS id_checksum
    FROM {s}.epochs e WHERE e.generation <= (SELECT min(generation) FROM {s}.manifests)
    GROUP BY e.generation HAVING count(*) > 1 AND max(e.committed_at) < now() - %(horizon)s
), by_partition AS (
    SELECT generation, jsonb_object_agg(partition, jsonb_build_array(read, counted, duplicates, quarantined)) AS partitions FROM (
        SELECT e.generation, p.key AS partition, sum((p.value ->> 0)::bigint) AS read, sum((p.value ->> 1)::bigint) AS counted,
            sum((p.value ->> 2)::bigint) AS duplicates, sum((p.value ->> 3)::bigint) AS quarantined
        FROM {s}.epochs e JOIN old USING (generation) CROSS JOIN jsonb_each(e.partitions) p GROUP BY 1, 2
    ) s GROUP BY generation
)
UPDATE {s}.epochs r SET first_epoch = old.first_epoch, start = g.start, until = g.until, folded = g.folded, watermark = g.watermark,
    partitions = coalesce(b.partitions, '{{}}'), read = old.read, counted = old.counted, duplicates = old.duplicates,
    quarantined = old.quarantined, late = old.late, id_checksum = old.id_checksum
FROM old JOIN {s}.generations g USING (generation) LEFT JOIN by_partition b USING (generation) WHERE r.epoch = old.epoch
"""
_DROP_MERGED = """
DELETE FROM {s}.epochs e USING {s}.epochs r WHERE r.generation = e.generation AND e.epoch >= r.first_epoch AND e.epoch < r.epoch
"""


def _tables(conn: Connection, line: str, gone: Expired) -> Expired:
    lock_schema(conn, line)
    rows = conn.execute(on_line(line, _UNUSED), {"schema": schema_of(line)}).fetchall()
    for (fingerprint,) in rows:
        for side in ("speed", "batch"):
            conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema_of(line), f"{side}_{fingerprint}")))
    return replace(gone, fingerprints=tuple(Fingerprint(row[0]) for row in rows))


_UNUSED = """
SELECT DISTINCT substr(c.relname, 7) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND c.relname ~ '^(speed|batch)_[0-9a-f]{{12}}$'
    AND NOT EXISTS (SELECT FROM {s}.views v WHERE v.fingerprint = substr(c.relname, 7))
    AND NOT EXISTS (SELECT FROM {s}.manifests m WHERE substr(c.relname, 7) = ANY (m.named))
    AND NOT EXISTS (SELECT FROM {s}.generations g WHERE NOT g.rows_expired AND substr(c.relname, 7) = ANY (g.touched))
    AND NOT EXISTS (SELECT FROM {s}.segments s WHERE s.fingerprint = substr(c.relname, 7))
ORDER BY 1
"""
