"""The merged read: one statement, so one snapshot, so one answer that is exact at the frontier it states.

`statement` and `answer` are pure, so that any pool, also an asynchronous one, can run what lies between them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from serving.errors import BadRequest, SeamGap, UnknownManifest, ViewNotReady
from serving.store.cursors import decode_cursor, encode_cursor, storable
from serving.store.database import Connection, on_line, translated
from serving.store.read_sql import Shape, read_sql
from serving.store.records import Answer, ManifestId, Provenance, Query, SeamState
from serving.store.vectors import OffsetVector
from views.view import View

Row = tuple[Any, ...]


def read(conn: Connection, line: str, view: View, query: Query) -> Answer:
    """The merged rows of one question with their provenance.

    Raises `SeamGap` or `ViewNotReady` where the answer would be a smaller number, `UnknownManifest`, `BadRequest`.
    """
    text, params = statement(line, view, query)
    with translated(line):
        rows = conn.execute(text, params).fetchall()
    return answer(view, query, rows)


def statement(line: str, view: View, query: Query) -> tuple[bytes, dict[str, object]]:
    """The one statement of a question and its parameters; `BadRequest` where it cannot be asked that way."""
    params = _checked(view, query)
    shape = Shape(
        key=tuple(field for field in view.key if field in query.key),
        start=query.start is not None,
        end=query.end is not None,
        total=query.total,
        as_of=query.as_of is not None,
        limit=query.limit is not None,
        cursor=query.cursor is not None,
    )
    return read_sql(line, view, shape), params


def answer(view: View, query: Query, rows: Sequence[Row]) -> Answer:
    """What the rows of `statement` say."""
    if not rows:
        raise UnknownManifest(f"There is no manifest {query.as_of}.", fix="seam manifests", manifest=query.as_of)
    manifest, cut, frontier, watermark, stale_seconds, problem = json.loads(rows[0][0])
    if problem is not None:
        raise _refusal(view, query, problem, manifest, cut, frontier)
    more = query.limit is not None and len(rows) > query.limit + 1
    page = rows[1 : query.limit + 1] if query.limit is not None else rows[1:]
    shown = [_shown(view, row, watermark) for row in page]
    width = len(view.key)
    provenance = Provenance(
        manifest=ManifestId(manifest),
        cut=OffsetVector.from_json(cut),
        frontier=OffsetVector.from_json(frontier),
        from_batch=sum(row[-2] for row in page),
        from_speed=sum(row[-1] for row in page),
        stale_seconds=stale_seconds,
    )
    last = page[-1] if more else None
    after = encode_cursor(view, last[1 : 1 + width], None if query.total else last[1 + width]) if last is not None else None
    return Answer(shown, provenance, after)


def _shown(view: View, row: Row, watermark: float | None) -> dict[str, object]:
    """Partials become shown values here and nowhere earlier."""
    width = len(view.key)
    first_window, last_window = row[1 + width], row[2 + width]
    window_end = last_window + view.window.seconds
    shown: dict[str, object] = dict(zip(view.key, row[1 : 1 + width], strict=True))
    shown["window_start"] = _instant(first_window)
    shown["window_end"] = _instant(window_end)
    at = 3 + width
    for name, measure in view.measures.items():
        many = len(measure.columns(name))
        shown[name] = measure.present([int(value) for value in row[at : at + many]])
        at += many
    shown["id_checksum"] = int(row[at + 1])
    shown["final"] = watermark is not None and not row[at + 2] and window_end <= watermark
    return shown


@lru_cache(maxsize=100_000)
def _instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refusal(view: View, query: Query, problem: str, manifest: int, cut: object, frontier: object) -> SeamGap | ViewNotReady:
    if problem == "gap":
        return SeamGap(
            f"The generations after manifest {manifest} do not tile [{cut}, {frontier}).",
            untouched="No answer is given, as it would be too small.",
            fix="seam status",
            view=view.name,
            manifest=manifest,
            cut=cut,
            frontier=frontier,
        )
    why = "does not hold it" if problem == "unnamed" else "is followed by epochs that did not count it"
    return ViewNotReady(
        f"{view.name} ({view.fingerprint}) has no complete result: manifest {manifest} {why}.",
        fix="seam manifests" if query.as_of is not None else "seam nightly",
        view=view.name,
        manifest=manifest,
        reason=problem,
    )


def _checked(view: View, query: Query) -> dict[str, object]:
    unknown = [field for field in query.key if field not in view.key]
    if unknown:
        legal = ", ".join(view.key) or "none"
        raise BadRequest(
            f"{view.name} has no key field {unknown[0]!r}.", fix=f"Its key fields: {legal}.", field=unknown[0], legal=list(view.key)
        )
    for field, value in query.key.items():
        if not storable(value):
            raise BadRequest(f"The value of {field} is not text that an event can hold.", fix="Use Unicode without U+0000.", field=field)
    if query.limit is not None and not 1 <= query.limit <= 1_000_000:
        raise BadRequest(f"limit is {query.limit}.", fix="Use 1 to 1000000.", field="limit")
    if query.as_of is not None and not 0 <= query.as_of < 1 << 62:
        raise UnknownManifest(f"There is no manifest {query.as_of}.", fix="seam manifests", manifest=query.as_of)
    params: dict[str, object] = {f"key_{field}": value for field, value in query.key.items()}
    params |= {"as_of": query.as_of, "start": _utc("from", query.start), "end": _utc("to", query.end)}
    if query.start is not None and query.end is not None and query.end < query.start:
        raise BadRequest("`to` lies before `from`.", fix="Ranges are half-open: from <= window_start < to.", field="to")
    if query.limit is not None:
        params["many"] = query.limit + 1
    if query.cursor is not None:
        key, window_start = decode_cursor(view, query.cursor, total=query.total)
        params |= {f"after_{field}": value for field, value in zip(view.key, key, strict=True)}
        params["after_window"] = window_start
    return params


def _utc(name: str, instant: datetime | None) -> datetime | None:
    if instant is None:
        return None
    if instant.tzinfo is None:
        raise BadRequest(f"`{name}` has no UTC offset.", fix="Write it like 2026-03-01T12:00:00Z.", field=name)
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise BadRequest(f"`{name}` is out of range.", fix="Write it like 2026-03-01T12:00:00Z.", field=name) from None


_SEAM = """
SELECT m.manifest, m.published_at, m.generation, m.cut, f.until, f.generation, f.epoch, f.watermark,
    extract(epoch FROM statement_timestamp() - f.alive_at)::float8,
    t.read::bigint, t.counted::bigint, t.duplicates::bigint, t.quarantined::bigint, t.late::bigint
FROM {s}.pointer p JOIN {s}.manifests m ON m.manifest = p.manifest CROSS JOIN {s}.frontier f CROSS JOIN (
    SELECT sum(read) AS read, sum(counted) AS counted, sum(duplicates) AS duplicates, sum(quarantined) AS quarantined, sum(late) AS late
    FROM {s}.generations
) t
"""


def seam(conn: Connection, line: str) -> SeamState:
    """Where the seam and the frontier are, how old the speed layer's last sign of life is, and what was read so far."""
    with translated(line):
        row = conn.execute(on_line(line, _SEAM)).fetchone()
    assert row is not None, "pointer and frontier have one row each"
    manifest, published_at, generation, cut, until, open_generation, epoch, watermark, stale_seconds, *counts = row
    return SeamState(
        line=line,
        manifest=ManifestId(manifest),
        published_at=published_at,
        generation=generation,
        cut=OffsetVector.from_json(cut),
        frontier=OffsetVector.from_json(until),
        open_generation=open_generation,
        epoch=epoch,
        watermark=watermark,
        stale_seconds=stale_seconds,
        counts=dict(zip(("read", "counted", "duplicates", "quarantined", "late"), counts, strict=True)),
    )
