"""Committing epochs: the speed layer's side of the seam protocol, and what it needs to start again.

Every writer proves itself by its token; a lock alone never does, as a lost connection frees it while its holder lives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from serving.errors import Fenced
from serving.store.arrays import InstantArray, Int8Array, TextArray, instant_array, int8_array, text_array
from serving.store.cells import added, cell_columns, cell_key, names, speed_table
from serving.store.database import Connection, on_line, one_round_trip, schema_of, translated
from serving.store.epoch_checks import check_epoch
from serving.store.quarantine import ADD_QUARANTINE, quarantine_arrays
from serving.store.records import Epoch, Frontier, Marker, SeenIds, Token
from serving.store.vectors import OffsetVector
from views.view import View

_CHUNK_IDS = 1_000_000


def take_over(conn: Connection, line: str) -> Token:
    """A new token: every earlier writer of this line is fenced from here on. Take it first, then read the frontier."""
    with translated(line):
        row = conn.execute(on_line(line, "UPDATE {s}.frontier SET token = gen_random_uuid() RETURNING token")).fetchone()
    assert row is not None, "a line has one frontier"
    return Token(row[0])


def read_frontier(conn: Connection, line: str) -> Frontier:
    """Up to where epochs are committed, with the last delivery read of each partition."""
    with translated(line):
        row = conn.execute(on_line(line, "SELECT until, markers, epoch, generation, watermark FROM {s}.frontier")).fetchone()
    assert row is not None, "a line has one frontier"
    until, markers, epoch, generation, watermark = row
    read = {int(partition): Marker(m["offset"], m["id_hash"], m["value_hash"]) for partition, m in markers.items()}
    return Frontier(OffsetVector.from_json(until), read, epoch, generation, watermark)


def load_seen(conn: Connection, line: str, *, since: datetime, most: int) -> Iterator[SeenIds]:
    """The seen ids of the horizon, newest epoch first, until there are `most`.

    An id expires only when old by both `log_time` and commit time. Read in pieces, so memory holds no more than one.
    """
    with translated(line):
        chosen = conn.execute(on_line(line, _CHOSEN), {"since": since, "most": most}).fetchall()
    for chunk in _chunks(chosen):
        with translated(line), conn.cursor(binary=True) as cursor:
            cursor.execute(on_line(line, _PACKED), (chunk,))
            pieces = cursor.fetchall()
        for packed, newest_log_time in pieces:
            yield SeenIds(packed, newest_log_time)


_CHOSEN = """
SELECT epoch, ids FROM (
    SELECT epoch, ids, sum(ids) OVER (ORDER BY epoch DESC) AS so_far FROM {s}.seen_ids
    WHERE newest_log_time >= %(since)s OR committed_at >= %(since)s
) e WHERE so_far - ids < %(most)s ORDER BY epoch DESC
"""
_PACKED = "SELECT packed, newest_log_time FROM {s}.seen_ids WHERE epoch = ANY (%s) ORDER BY epoch DESC"


def _chunks(chosen: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    chunk: list[int] = []
    held = 0
    for epoch, ids in chosen:
        chunk.append(epoch)
        held += ids
        if held >= _CHUNK_IDS:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


def commit_epoch(conn: Connection, line: str, token: Token, epoch: Epoch, views: Sequence[View]) -> int:
    """Commits one epoch and returns its number; `Fenced` or `StaleFrontier` if another writer came between.

    1. lock the frontier and only then read it and the open generation; check token and frontier
    2. add the partials to the speed rows of the open generation
    3. insert the epoch, its seen ids and its quarantine rows
    4. move the frontier

    Guarantees: one transaction in one round trip; if it dies anywhere, nothing of the epoch is stored. Run twice, the
    second finds the frontier moved and writes nothing.
    """
    check_epoch(epoch, views)
    different = {view.fingerprint: view for view in views}
    values = _epoch_values(token, epoch, sorted(different))
    with translated(line):
        with one_round_trip(conn):
            # 1. lock, then read; raises in the server, so that nothing after it runs
            conn.execute(on_line(line, "SELECT {s}.hold_frontier(%(token)s, %(start)s)"), values)
            # 2. partials
            for fingerprint, view in different.items():
                cells = epoch.cells[fingerprint]
                if cells.num_rows:
                    conn.execute(_upsert(line, view), _cell_arrays(view, cells))
            # 3. the epoch, its seen ids, its quarantine rows
            conn.execute(on_line(line, _INSERT_EPOCH), values)
            if epoch.seen is not None:
                conn.execute(on_line(line, _INSERT_SEEN), values)
            if epoch.quarantine:
                conn.execute(on_line(line, ADD_QUARANTINE), quarantine_arrays(epoch.quarantine))
            # 4. the frontier
            conn.execute(on_line(line, _EXTEND_GENERATION), values)
            moved = conn.execute(on_line(line, _MOVE_FRONTIER), values)
        row = moved.fetchone()
    assert row is not None, "the frontier was locked in this transaction"
    return int(row[0])


_INSERT_EPOCH = """
INSERT INTO {s}.epochs (epoch, first_epoch, generation, start, until, partitions, read, counted, duplicates, quarantined,
    late, id_checksum, watermark, folded)
SELECT f.epoch + 1, f.epoch + 1, f.generation, %(start)s, %(until)s, %(partitions)s, %(read)s, %(counted)s, %(duplicates)s,
    %(quarantined)s, %(late)s, %(id_checksum)s, %(watermark)s, %(folded)s FROM {s}.frontier f
"""
_INSERT_SEEN = """
INSERT INTO {s}.seen_ids (epoch, generation, ids, newest_log_time, packed)
SELECT f.epoch + 1, f.generation, %(counted)s, %(newest_log_time)s, %(packed)b FROM {s}.frontier f
"""
_EXTEND_GENERATION = """
UPDATE {s}.generations g SET until = %(until)s, watermark = greatest(g.watermark, %(watermark)s),
    read = g.read + %(read)s, counted = g.counted + %(counted)s, duplicates = g.duplicates + %(duplicates)s,
    quarantined = g.quarantined + %(quarantined)s, late = g.late + %(late)s, id_checksum = g.id_checksum # %(id_checksum)s,
    folded = CASE WHEN g.folded IS NULL THEN %(folded)s::text[]
        WHEN g.folded = %(folded)s::text[] THEN g.folded
        ELSE ARRAY (SELECT unnest(g.folded) INTERSECT SELECT unnest(%(folded)s::text[]) ORDER BY 1) END,
    touched = CASE WHEN g.touched @> %(folded)s::text[] THEN g.touched
        ELSE ARRAY (SELECT unnest(g.touched) UNION SELECT unnest(%(folded)s::text[]) ORDER BY 1) END
FROM {s}.frontier f WHERE g.generation = f.generation
"""
_MOVE_FRONTIER = """
UPDATE {s}.frontier SET until = %(until)s, markers = markers || %(markers)s, epoch = epoch + 1,
    watermark = greatest(watermark, %(watermark)s), alive_at = clock_timestamp() RETURNING epoch
"""


def _epoch_values(token: Token, epoch: Epoch, folded: list[Any]) -> dict[str, Any]:
    counts = epoch.partitions.values()
    return {
        "token": token,
        "start": Jsonb(epoch.start.to_json()),
        "until": Jsonb(epoch.until.to_json()),
        "markers": Jsonb(
            {str(p): {"offset": m.offset, "id_hash": m.id_hash, "value_hash": m.value_hash} for p, m in epoch.markers.items()}
        ),
        "partitions": Jsonb({str(p): [c.read, c.counted, c.duplicates, c.quarantined] for p, c in epoch.partitions.items()}),
        "read": sum(c.read for c in counts),
        "counted": sum(c.counted for c in counts),
        "duplicates": sum(c.duplicates for c in counts),
        "quarantined": sum(c.quarantined for c in counts),
        "late": epoch.late,
        "id_checksum": epoch.id_checksum,
        "watermark": epoch.watermark,
        "folded": folded,
        "packed": epoch.seen.packed if epoch.seen else None,
        "newest_log_time": epoch.seen.newest_log_time if epoch.seen else None,
    }


_upserts: dict[tuple[object, ...], bytes] = {}


def _upsert(line: str, view: View) -> bytes:
    known = (line, view.fingerprint, tuple(view.measures))
    if known not in _upserts:
        types = [*("text" for _ in view.key), "timestamptz", *("int8" for _ in view.columns)]
        # unnest as a column streams; as a table it would first be written out, at twice the cost
        arrays = [sql.SQL("unnest(%s::{}[])").format(sql.SQL(kind)) for kind in types]
        _upserts[known] = (
            sql.SQL(
                "INSERT INTO {table} AS t (generation, {columns}) SELECT (SELECT f.generation FROM {schema}.frontier f), {arrays}"
                " ON CONFLICT (generation, {key}) DO UPDATE SET {added}"
            )
            .format(
                table=speed_table(line, view),
                columns=names(cell_columns(view)),
                schema=sql.Identifier(schema_of(line)),
                arrays=sql.SQL(", ").join(arrays),
                key=names(cell_key(view)),
                added=sql.SQL(", ").join(added(column) for column in view.columns),
            )
            .as_bytes(None)
        )
    return _upserts[known]


def _cell_arrays(view: View, cells: Any) -> list[TextArray | InstantArray | Int8Array]:
    return [
        *(text_array(cells[field]) for field in view.key),
        instant_array(cells["window_start"]),
        *(int8_array(cells[column.name]) for column in view.columns),
    ]


def store_source_position(conn: Connection, line: str, token: Token, position: OffsetVector) -> None:
    """Remembers where the source would start again; never beyond the frontier.

    Guarantees: one transaction under the token; run twice it stores the same.
    """
    with translated(line), one_round_trip(conn):
        conn.execute(on_line(line, "SELECT {s}.hold_frontier(%s, NULL)"), (token,))
        conn.execute(on_line(line, _STORE_POSITION), {"position": Jsonb(position.to_json())})


_STORE_POSITION = """
INSERT INTO {s}.source_position (position, stored_at)
SELECT coalesce(jsonb_object_agg(p.key, least(p.value::bigint, (f.until ->> p.key)::bigint)) FILTER (WHERE f.until ? p.key), '{{}}'), now()
FROM {s}.frontier f CROSS JOIN jsonb_each_text(%(position)s) p
ON CONFLICT (one) DO UPDATE SET position = excluded.position, stored_at = excluded.stored_at
"""


def read_source_position(conn: Connection, line: str) -> OffsetVector | None:
    """Where the source last said it is; None before the first time."""
    with translated(line):
        row = conn.execute(on_line(line, "SELECT position FROM {s}.source_position")).fetchone()
    return OffsetVector.from_json(row[0]) if row else None


def sign_of_life(conn: Connection, line: str, token: Token) -> None:
    """Says that this speed layer lives though it has nothing to commit; `Fenced` if another took over."""
    with translated(line):
        changed = conn.execute(on_line(line, "UPDATE {s}.frontier SET alive_at = clock_timestamp() WHERE token = %s"), (token,)).rowcount
    if not changed:
        raise Fenced(f"Another speed layer took line {line} over.", untouched="Nothing was written.", fix="seam status", line=line)


def epoch_counts(conn: Connection, line: str) -> Mapping[int, tuple[int, int, int, int]]:
    """read, counted, duplicates and quarantined of each partition since the origin."""
    with translated(line):
        rows = conn.execute(on_line(line, _PARTITIONS)).fetchall()
    return {partition: (read, counted, duplicates, quarantined) for partition, read, counted, duplicates, quarantined in rows}


_PARTITIONS = """
SELECT p.key::int, sum((p.value ->> 0)::bigint)::bigint, sum((p.value ->> 1)::bigint)::bigint, sum((p.value ->> 2)::bigint)::bigint,
    sum((p.value ->> 3)::bigint)::bigint
FROM {s}.epochs e CROSS JOIN jsonb_each(e.partitions) p GROUP BY 1 ORDER BY 1
"""
