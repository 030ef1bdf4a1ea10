"""Manifests and the one pointer: publishing, rolling back, and what is published.

Only here does the pointer move, always under its row lock and always with a new version.
"""

from __future__ import annotations

from itertools import pairwise

from psycopg.types.json import Jsonb

from serving.errors import ChecksFailed, NightlyLocked, SeamGap, UnknownManifest, ViewNotReady
from serving.store.database import Connection, on_line, translated
from serving.store.expiry import expire as expire
from serving.store.records import Manifest, ManifestId, NewManifest
from serving.store.runs import begin_run as begin_run
from serving.store.runs import end_run as end_run
from serving.store.segments import list_segments as list_segments
from serving.store.segments import load_segment as load_segment
from serving.store.stored_manifests import hold_pointer, read_manifests
from serving.store.vectors import OffsetVector

__all__ = ["begin_run", "current", "end_run", "expire", "list_manifests", "list_segments", "load_segment", "publish", "roll_back"]


def list_manifests(conn: Connection, line: str) -> list[Manifest]:
    """Every retained manifest, oldest first."""
    with translated(line):
        return [manifest for manifest, _ in read_manifests(conn, line, None)]


def current(conn: Connection, line: str) -> tuple[Manifest, int]:
    """The manifest the pointer names, and the pointer's version: from one snapshot."""
    with translated(line):
        return next((m, version) for m, version in read_manifests(conn, line, None) if m.current)


def publish(conn: Connection, line: str, new: NewManifest) -> Manifest:
    """Makes a built result the current one; `NightlyLocked` if the pointer moved since the run began.

    1. lock the pointer row and compare its version
    2. check that the generation is sealed at this cut and follows the base's
    3. check that every named segment is there, loaded, and of this logic and day
    4. insert the manifest and its segments
    5. flip the pointer

    Guarantees: one transaction; a reader sees the old result or the new one. Dying before the end changes nothing a
    reader can see; run twice, the second call returns what the first published.
    """
    with translated(line), conn.transaction():
        # 1. the pointer
        pointed, version, last_manifest = hold_pointer(conn, line)
        known = conn.execute(on_line(line, "SELECT manifest FROM {s}.manifests WHERE run = %s"), (new.run,)).fetchone()
        if known is not None:
            return read_one(conn, line, known[0])
        if version != new.base_pointer_version or pointed != new.base:
            raise NightlyLocked(
                f"The pointer moved while this run worked: it began on manifest {new.base}, now manifest {pointed} is current.",
                untouched="Nothing was published.",
                fix="seam nightly",
                base=new.base,
                current=pointed,
            )
        # 2. the generation
        _check_generation(conn, line, new)
        # 3. the segments
        _check_segments(conn, line, new)
        # 4. the manifest
        manifest = ManifestId(last_manifest + 1)
        _insert(conn, line, manifest, new)
        # 5. the pointer
        _flip(conn, line, manifest, last_manifest=manifest)
        conn.execute(on_line(line, "UPDATE {s}.runs SET ended_at = now() WHERE run = %s"), (new.run,))
        return read_one(conn, line, manifest)


def roll_back(conn: Connection, line: str, manifest_id: ManifestId) -> Manifest:
    """Points to another retained manifest, older or newer, if every current view can be answered from it.

    Guarantees: one transaction under the pointer's lock; run twice, the second changes nothing.
    """
    with translated(line), conn.transaction():
        pointed, _, last_manifest = hold_pointer(conn, line)
        wanted = read_one(conn, line, manifest_id)
        if manifest_id == pointed:
            return wanted
        _check_answerable(conn, line, wanted)
        _flip(conn, line, manifest_id, last_manifest=last_manifest)
        return read_one(conn, line, manifest_id)


def read_one(conn: Connection, line: str, manifest_id: int) -> Manifest:
    found = read_manifests(conn, line, manifest_id) if 0 <= manifest_id < 1 << 62 else []
    if not found:
        raise UnknownManifest(
            f"Manifest {manifest_id} is not retained.", untouched="Nothing was changed.", fix="seam manifests", manifest=manifest_id
        )
    return found[0][0]


def _check_generation(conn: Connection, line: str, new: NewManifest) -> None:
    rows = conn.execute(on_line(line, _CHAIN), {"base": new.base, "generation": new.generation}).fetchall()
    sealed = bool(rows) and all(row[2] is not None for row in rows)
    if not sealed or rows[-1][0] != new.generation or OffsetVector.from_json(rows[-1][2]) != new.cut:
        raise SeamGap(
            f"Generation {new.generation} is not sealed at {new.cut} or does not follow manifest {new.base}.",
            untouched="Nothing was published.",
            fix="seam nightly",
            generation=new.generation,
        )
    for (_, _, cut), (generation, start, _) in pairwise(rows):
        if cut != start:
            raise SeamGap(
                f"Generation {generation} does not begin where the one before it ends.",
                untouched="Nothing was published.",
                fix="seam status",
            )


_CHAIN = """
SELECT g.generation, g.start, g.cut FROM {s}.generations g JOIN {s}.manifests b ON b.manifest = %(base)s
WHERE g.generation BETWEEN b.generation AND %(generation)s ORDER BY g.generation
"""


def _check_segments(conn: Connection, line: str, new: NewManifest) -> None:
    named = set(new.fingerprints.values())
    strange = {fingerprint for fingerprint, _ in new.segments} - named
    ids = [int(segment) for segment in new.segments.values()]
    rows = conn.execute(on_line(line, "SELECT segment, fingerprint, day FROM {s}.segments WHERE loaded AND segment = ANY (%s)"), (ids,))
    there = {(fingerprint, day): segment for segment, fingerprint, day in rows}
    missing = [key for key, segment in new.segments.items() if there.get(key) != segment]
    if strange or missing:
        what = (
            f"segment of {missing[0][0]} for {missing[0][1]} is not there" if missing else f"{sorted(strange)} is no view of the manifest"
        )
        raise ChecksFailed(
            f"The result is incomplete: {what} ({len(missing)} missing).", untouched="Nothing was published.", fix="seam nightly"
        )


def _insert(conn: Connection, line: str, manifest: ManifestId, new: NewManifest) -> None:
    conn.execute(
        on_line(line, _INSERT_MANIFEST),
        {
            "manifest": manifest,
            "run": new.run,
            "base": new.base,
            "generation": new.generation,
            "cut": Jsonb(new.cut.to_json()),
            "watermark": new.watermark,
            "fingerprints": Jsonb(dict(new.fingerprints)),
            "named": sorted(set(new.fingerprints.values())),
            "winner_runs": list(new.winner_runs),
            "counts": Jsonb(dict(new.counts)),
            "checks": Jsonb(dict(new.checks)),
        },
    )
    segments = [(fingerprint, day, int(segment)) for (fingerprint, day), segment in new.segments.items()]
    conn.execute(
        on_line(line, _INSERT_SEGMENTS),
        (manifest, [s[0] for s in segments], [s[1] for s in segments], [s[2] for s in segments]),
    )


_INSERT_MANIFEST = """
INSERT INTO {s}.manifests (manifest, run, base, generation, cut, watermark, fingerprints, named, winner_runs, counts, checks)
VALUES (%(manifest)s, %(run)s, %(base)s, %(generation)s, %(cut)s, %(watermark)s, %(fingerprints)s, %(named)s::text[],
    %(winner_runs)s::uuid[], %(counts)s, %(checks)s)
"""
_INSERT_SEGMENTS = """
INSERT INTO {s}.manifest_segments (manifest, fingerprint, day, segment)
SELECT %s, f, d, g FROM unnest(%s::text[], %s::date[], %s::bigint[]) AS u(f, d, g)
"""


def _flip(conn: Connection, line: str, manifest: ManifestId, *, last_manifest: int) -> None:
    conn.execute(
        on_line(line, "UPDATE {s}.pointer SET manifest = %s, version = version + 1, last_manifest = %s"),
        (manifest, last_manifest),
    )


def _check_answerable(conn: Connection, line: str, wanted: Manifest) -> None:
    gone = conn.execute(
        on_line(line, "SELECT generation FROM {s}.generations WHERE generation > %s AND rows_expired ORDER BY generation"),
        (wanted.generation,),
    ).fetchall()
    if gone:
        raise SeamGap(
            f"Manifest {wanted.manifest} needs the speed rows of generation {gone[0][0]}, and these are expired.",
            untouched="The pointer did not move.",
            fix="seam manifests",
            manifest=wanted.manifest,
        )
    broken = conn.execute(on_line(line, _BROKEN), {"manifest": wanted.manifest}).fetchall()
    if broken:
        names = ", ".join(row[0] for row in broken)
        raise ViewNotReady(
            f"Manifest {wanted.manifest} cannot answer {names}, which can be answered now.",
            untouched="The pointer did not move.",
            fix="seam manifests",
            manifest=wanted.manifest,
            views=[row[0] for row in broken],
        )


_BROKEN = """
SELECT v.name FROM {s}.views v
CROSS JOIN LATERAL (SELECT problem FROM {s}.seam_state(v.fingerprint, NULL)) now
JOIN {s}.manifests m ON m.manifest = %(manifest)s
WHERE now.problem IS NULL AND (
    (m.generation > 0 AND v.fingerprint <> ALL (m.named))
    OR EXISTS (SELECT FROM {s}.generations g WHERE g.generation > m.generation AND v.fingerprint <> ALL (g.folded))
) ORDER BY v.name
"""
