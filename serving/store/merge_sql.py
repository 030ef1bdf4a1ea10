"""The SQL that joins both sides of the seam: one text for the merged read and for the SQL views.

It expects the relation `state` (manifest, generation, …) and reads the segments of that manifest and the speed rows of
the generations after it. Nothing here decides whether an answer may be given; `seam_state` does.
"""

from __future__ import annotations

from psycopg import sql

from serving.store.cells import batch_table, cell_columns, cell_key, merged, names, speed_table
from serving.store.database import schema_of
from views.view import View

Text = sql.SQL | sql.Composed
NOTHING: Text = sql.SQL("")


def segments_of(line: str, view: View, days: Text = NOTHING) -> Text:
    """The segments the manifest names for this view."""
    return sql.SQL(
        "SELECT n.segment FROM state JOIN {}.manifest_segments n ON n.manifest = state.manifest AND n.fingerprint = {}{}"
    ).format(sql.Identifier(schema_of(line)), sql.Literal(view.fingerprint), days)


def generations_of(line: str) -> Text:
    """The generations after the manifest's."""
    return sql.SQL("SELECT g.generation FROM state JOIN {}.generations g ON g.generation > state.generation").format(
        sql.Identifier(schema_of(line))
    )


def parts(line: str, view: View, *, days: Text = NOTHING, cells: Text = NOTHING, first: Text = NOTHING) -> Text:
    """The cells of both sides, unmerged. `cells` filters them; `first` orders and bounds those of each segment and generation."""
    side = sql.SQL(
        "SELECT {columns}, {speed} AS speed FROM ({chosen}) c CROSS JOIN LATERAL"
        " (SELECT {columns} FROM {table} t WHERE t.{part} = c.{part}{cells}{first}) p"
    )
    columns = names(cell_columns(view))
    batch = side.format(
        columns=columns,
        speed=sql.SQL("false"),
        chosen=segments_of(line, view, days),
        table=batch_table(line, view),
        part=sql.Identifier("segment"),
        cells=cells,
        first=first,
    )
    speed = side.format(
        columns=columns,
        speed=sql.SQL("true"),
        chosen=generations_of(line),
        table=speed_table(line, view),
        part=sql.Identifier("generation"),
        cells=cells,
        first=first,
    )
    return sql.SQL("{} UNION ALL {}").format(batch, speed)


def merged_cells(view: View, *, total: bool = False) -> Text:
    """One row per cell of the relation `parts`; with `total`, one per key over all its windows."""
    by = view.key if total else cell_key(view)
    return sql.SQL(
        "SELECT {keys}{first_window} AS first_window, {last_window} AS last_window, {partials}, bool_or(speed) AS speed,"
        " coalesce(sum(events) FILTER (WHERE NOT speed), 0)::bigint AS from_batch,"
        " coalesce(sum(events) FILTER (WHERE speed), 0)::bigint AS from_speed"
        " FROM parts{group} HAVING count(*) > 0"
    ).format(
        keys=sql.SQL("").join(sql.SQL("{}, ").format(sql.Identifier(field)) for field in view.key),
        first_window=sql.SQL("min(window_start)" if total else "window_start"),
        last_window=sql.SQL("max(window_start)" if total else "window_start"),
        partials=sql.SQL(", ").join(sql.SQL("{} AS {}").format(merged(column), sql.Identifier(column.name)) for column in view.columns),
        group=sql.SQL(" GROUP BY {}").format(names(by)) if by else NOTHING,
    )
