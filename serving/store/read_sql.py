"""The text of the merged read, built once per view and shape of question."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from serving.store.cells import cell_key, names
from serving.store.database import schema_of
from serving.store.merge_sql import NOTHING, Pointed, Text, merged_cells, parts
from views.view import View


@dataclass(frozen=True, slots=True)
class Shape:
    """Which parts of a question are given; the values are parameters."""

    key: tuple[str, ...]
    start: bool
    end: bool
    total: bool
    as_of: bool
    limit: bool
    cursor: bool


_texts: dict[tuple[object, ...], bytes] = {}


def read_sql(line: str, view: View, shape: Shape) -> bytes:
    """The statement: its first row is the state as JSON, the others are merged cells in order."""
    known = (line, view.fingerprint, tuple(view.measures), shape)
    if known not in _texts:
        _texts[known] = _built(line, view, shape).as_bytes(None)
    return _texts[known]


def _built(line: str, view: View, shape: Shape) -> sql.Composed:
    state_row = sql.SQL(
        "SELECT jsonb_build_array(manifest, cut, frontier, extract(epoch FROM watermark), stale_seconds, problem)::text AS state,"
        " {nulls} FROM seam"
    )
    cell_row = sql.SQL(
        "SELECT NULL, {keys}extract(epoch FROM first_window)::bigint, extract(epoch FROM last_window)::bigint,"
        " {partials}, speed, from_batch, from_speed FROM merged"
    )
    columns = _result_columns(view)
    return sql.SQL(
        # 1. pointer, frontier, readiness and tiling; 2. only a sound state goes on
        "WITH seam AS MATERIALIZED (SELECT * FROM {schema}.seam_state({fingerprint}, %(as_of)s::bigint)),"
        " state AS (SELECT * FROM seam WHERE problem IS NULL),"
        # 3. segments of the asked days, speed rows of the later generations
        " parts AS ({parts}),"
        # 4. merge, and only then the limit
        " merged AS ({merged}{bounded})"
        # 5. the state and the rows, from the same snapshot
        " {state_row} UNION ALL {cell_row} ORDER BY {order}"
    ).format(
        schema=sql.Identifier(schema_of(line)),
        fingerprint=sql.Literal(view.fingerprint),
        parts=_parts(line, view, shape),
        merged=merged_cells(view, total=shape.total),
        bounded=_bounded(view, shape),
        state_row=state_row.format(
            nulls=sql.SQL(", ").join(sql.SQL("NULL::{} AS {}").format(kind, sql.Identifier(name)) for name, kind in columns)
        ),
        cell_row=cell_row.format(
            keys=sql.SQL("").join(sql.SQL("{}, ").format(sql.Identifier(field)) for field in view.key),
            partials=names(column.name for column in view.columns),
        ),
        order=sql.SQL("state NULLS LAST, {}").format(names((*view.key, "first_window"))),
    )


def _result_columns(view: View) -> list[tuple[str, Text]]:
    partials = [(column.name, sql.SQL("numeric" if column.wide else "bigint")) for column in view.columns]
    return [
        *((field, sql.SQL('text COLLATE "C"')) for field in view.key),
        ("first_window", sql.SQL("bigint")),
        ("last_window", sql.SQL("bigint")),
        *partials,
        ("speed", sql.SQL("boolean")),
        ("from_batch", sql.SQL("bigint")),
        ("from_speed", sql.SQL("bigint")),
    ]


_AS_OF = Pointed(sql.SQL("(SELECT manifest FROM state)"), None)
_POINTED = Pointed(sql.SQL("(SELECT manifest FROM state)"), sql.SQL("(SELECT generation FROM state)"))


def _parts(line: str, view: View, shape: Shape) -> Text:
    cells = [sql.SQL(" AND t.{} = {}").format(sql.Identifier(field), sql.Placeholder(f"key_{field}")) for field in shape.key]
    days: list[Text] = []
    if shape.start:
        cells.append(sql.SQL(" AND t.window_start >= %(start)s").format())
        days.append(sql.SQL(" AND n.day >= (%(start)s::timestamptz AT TIME ZONE 'UTC')::date"))
    if shape.end:
        cells.append(sql.SQL(" AND t.window_start < %(end)s").format())
        days.append(sql.SQL(" AND n.day <= (%(end)s::timestamptz AT TIME ZONE 'UTC')::date"))
    if shape.cursor:
        cells.append(_after_cursor(view, shape))
    # In one segment or generation a cell is one row. So a cell among the first n of the answer is among the first n
    # of each of them that holds it, and bounding each before the merge loses no part of any shown cell.
    first = sql.SQL(" ORDER BY {} LIMIT %(many)s").format(names(cell_key(view))) if shape.limit and not shape.total else NOTHING
    return parts(line, view, _AS_OF if shape.as_of else _POINTED, days=sql.Composed(days), cells=sql.Composed(cells), first=first)


def _after_cursor(view: View, shape: Shape) -> sql.Composed:
    columns = [*(sql.SQL("t.{}").format(sql.Identifier(field)) for field in view.key)]
    values = [*(sql.SQL("{}::text").format(sql.Placeholder(f"after_{field}")) for field in view.key)]
    if not shape.total:
        columns.append(sql.SQL("t.window_start").format())
        values.append(sql.SQL("to_timestamp(%(after_window)s::bigint)").format())
    if not columns:
        return sql.SQL(" AND false").format()
    return sql.SQL(" AND ({}) > ({})").format(sql.SQL(", ").join(columns), sql.SQL(", ").join(values))


def _bounded(view: View, shape: Shape) -> Text:
    if not shape.limit:
        return NOTHING
    by = names(view.key if shape.total else cell_key(view)) if view.key or not shape.total else sql.SQL("first_window")
    return sql.SQL(" ORDER BY {} LIMIT %(many)s").format(by)
