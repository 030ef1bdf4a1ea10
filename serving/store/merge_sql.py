"""The SQL that joins both sides of the seam: one text for the merged read and for the SQL views.

It reads the segments of one manifest and the speed rows of the generations after it. Nothing here decides whether an
answer may be given; `seam_state` does.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from serving.store.cells import batch_table, cell_columns, cell_key, merged, names, speed_table
from serving.store.database import schema_of
from views.view import View

Text = sql.SQL | sql.Composed
NOTHING: Text = sql.SQL("")


@dataclass(frozen=True, slots=True)
class Pointed:
    """The manifest's id and generation, as SQL values and not as a relation: no plan can begin anywhere else."""

    manifest: Text
    generation: Text | None
    """None leaves the speed side out: the rows at the manifest's own cut."""


def parts(line: str, view: View, pointed: Pointed, *, days: Text = NOTHING, cells: Text = NOTHING, first: Text = NOTHING) -> Text:
    """The cells of both sides, unmerged. `cells` filters them; `first` orders and bounds those of each segment and generation."""
    schema = sql.Identifier(schema_of(line))
    segments = sql.SQL("SELECT n.segment FROM {}.manifest_segments n WHERE n.manifest = {} AND n.fingerprint = {}{}").format(
        schema, pointed.manifest, sql.Literal(view.fingerprint), days
    )
    chosen = [("false", segments, batch_table(line, view), "segment")]
    if pointed.generation is not None:
        generations = sql.SQL("SELECT g.generation FROM {}.generations g WHERE g.generation > {}").format(schema, pointed.generation)
        chosen.append(("true", generations, speed_table(line, view), "generation"))
    side = sql.SQL(
        "SELECT {columns}, {speed} AS speed FROM ({chosen}) c CROSS JOIN LATERAL"
        " (SELECT {columns} FROM {table} t WHERE t.{part} = c.{part}{cells}{first}) p"
    )
    sides = [
        side.format(
            columns=names(cell_columns(view)),
            speed=sql.SQL(speed),
            chosen=ids,
            table=table,
            part=sql.Identifier(part),
            cells=cells,
            first=first,
        )
        for speed, ids, table, part in chosen
    ]
    return sql.SQL(" UNION ALL ").join(sides)


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
