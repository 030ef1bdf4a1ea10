"""One read-only SQL view per view: the merged rows with their provenance, for everything that speaks SQL.

A hole is an SQL error (`SEA03` SeamGap, `SEA04` ViewNotReady), never a smaller number.
"""

from __future__ import annotations

from psycopg import sql

from serving.store.cells import names
from serving.store.database import schema_of
from serving.store.merge_sql import Pointed, merged_cells, parts
from views.view import View


def sql_schema(line: str) -> str:
    """Where people look: `seam` for the first line, `seam_<line>` for the others."""
    return "seam" if line == "main" else f"seam_{schema_of(line).removeprefix('line_')}"


def sql_view_statements(line: str, view: View) -> list[sql.Composed]:
    """(Re)creates the SQL view in the transaction of the caller."""
    name = sql.Identifier(sql_schema(line), view.name)
    return [
        sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(sql_schema(line))),
        sql.SQL("DROP VIEW IF EXISTS {}").format(name),
        sql.SQL("CREATE VIEW {} AS {}").format(name, _selected(line, view)),
    ]


def _selected(line: str, view: View) -> sql.Composed:
    """LATERAL on the checked state: the check runs before the first row, whatever the planner prefers."""
    return sql.SQL(
        "SELECT {keys}m.first_window AS window_start, m.first_window + {length} AS window_end, {measures}, m.id_checksum,"
        " coalesce(NOT m.speed AND m.first_window + {length} <= s.watermark, false) AS final,"
        " s.manifest, s.cut, s.frontier, m.from_batch, m.from_speed"
        " FROM {schema}.seam_checked({name}, {fingerprint}) s CROSS JOIN LATERAL"
        " (WITH parts AS ({parts}) {merged}) m"
    ).format(
        keys=sql.SQL("").join(sql.SQL("m.{}, ").format(sql.Identifier(field)) for field in view.key),
        length=sql.SQL("interval {}").format(sql.Literal(f"{view.window.seconds} seconds")),
        measures=names(column.name for column in view.measure_columns),
        schema=sql.Identifier(schema_of(line)),
        name=sql.Literal(view.name),
        fingerprint=sql.Literal(view.fingerprint),
        parts=parts(line, view, Pointed(sql.SQL("s.manifest"), sql.SQL("s.generation"))),
        merged=merged_cells(view),
    )
