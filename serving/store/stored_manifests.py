"""Reading manifests and holding the pointer: what publishing, runs and expiry share."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from serving.store.database import Connection, on_line
from serving.store.records import Manifest
from serving.store.vectors import OffsetVector

_MANIFESTS = """
SELECT m.manifest, m.generation, m.cut, m.watermark, m.base, m.fingerprints, m.winner_runs, m.counts, m.checks, m.published_at,
    m.manifest = p.manifest, p.version,
    coalesce((SELECT jsonb_agg(jsonb_build_array(n.fingerprint, n.day - date '1970-01-01', n.segment)) FROM {s}.manifest_segments n
        WHERE n.manifest = m.manifest), '[]')
FROM {s}.manifests m CROSS JOIN {s}.pointer p WHERE %(one)s::bigint IS NULL OR m.manifest = %(one)s ORDER BY m.manifest
"""


def read_manifests(conn: Connection, line: str, one: int | None) -> list[tuple[Manifest, int]]:
    """All manifests or one, each with the pointer's version."""
    return [_manifest(row) for row in conn.execute(on_line(line, _MANIFESTS), {"one": one}).fetchall()]


def hold_pointer(conn: Connection, line: str) -> tuple[int, int, int]:
    """Locks the pointer row, then reads it: the manifest it names, its version, the greatest manifest ever made."""
    row = conn.execute(on_line(line, "SELECT manifest, version, last_manifest FROM {s}.pointer FOR UPDATE")).fetchone()
    assert row is not None, "a line has one pointer"
    return row[0], row[1], row[2]


def _manifest(row: Any) -> tuple[Manifest, int]:
    manifest, generation, cut, watermark, base, fingerprints, winner_runs, counts, checks, published_at, is_current, version, segments = row
    return (
        Manifest(
            manifest=manifest,
            generation=generation,
            cut=OffsetVector.from_json(cut),
            watermark=watermark,
            base=base,
            fingerprints=fingerprints,
            segments={(fingerprint, date(1970, 1, 1) + timedelta(days=day)): segment for fingerprint, day, segment in segments},
            winner_runs=tuple(winner_runs),
            counts=counts,
            checks=checks,
            published_at=published_at,
            current=is_current,
        ),
        version,
    )
