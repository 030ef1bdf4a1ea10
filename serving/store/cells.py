"""How a view's cells are stored: table names, columns, and SQL that merges partials.

The fingerprint alone names a table, so two names for one question share their rows and can never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import LiteralString

from psycopg import sql

from serving.store.database import schema_of
from views.measures import Merge, PartialColumn
from views.view import View

_MERGED: dict[Merge, LiteralString] = {Merge.SUM: "sum({c})", Merge.MIN: "min({c})", Merge.MAX: "max({c})", Merge.XOR: "bit_xor({c})"}
_ADDED: dict[Merge, LiteralString] = {
    Merge.SUM: "{c} = t.{c} + excluded.{c}",
    Merge.MIN: "{c} = least(t.{c}, excluded.{c})",
    Merge.MAX: "{c} = greatest(t.{c}, excluded.{c})",
    Merge.XOR: "{c} = t.{c} # excluded.{c}",
}


def speed_table(line: str, view: View) -> sql.Identifier:
    return sql.Identifier(schema_of(line), f"speed_{view.fingerprint}")


def batch_table(line: str, view: View) -> sql.Identifier:
    return sql.Identifier(schema_of(line), f"batch_{view.fingerprint}")


def names(columns: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column) for column in columns)


def cell_key(view: View) -> tuple[str, ...]:
    """What names a cell within one side: the key fields and the window."""
    return (*view.key, "window_start")


def cell_columns(view: View) -> tuple[str, ...]:
    return (*cell_key(view), *(column.name for column in view.columns))


def merged(column: PartialColumn) -> sql.Composed:
    """The aggregate that merges partials of this column."""
    merged = sql.SQL(_MERGED[column.merge]).format(c=sql.Identifier(column.name))
    # a narrow column that outgrows 64 bits is an error here, never a wrapped number
    return merged if column.wide else sql.SQL("{}::bigint").format(merged)


def added(column: PartialColumn) -> sql.Composed:
    """The assignment that adds a new partial to the stored one, `t`."""
    return sql.SQL(_ADDED[column.merge]).format(c=sql.Identifier(column.name))


def table_statements(line: str, view: View) -> list[sql.Composed]:
    """Creates the tables of one fingerprint. Key text sorts by code point, whatever the database's own collation."""
    columns = [
        *(sql.SQL('{} text COLLATE "C" NOT NULL').format(sql.Identifier(field)) for field in view.key),
        sql.SQL("window_start timestamptz NOT NULL"),
        *(
            sql.SQL("{} {} NOT NULL").format(sql.Identifier(column.name), sql.SQL("numeric" if column.wide else "bigint"))
            for column in view.columns
        ),
    ]
    create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({} {} NOT NULL, {}, PRIMARY KEY ({}, {})) WITH (fillfactor = {})")
    comment = sql.SQL("COMMENT ON TABLE {} IS {}")
    statements = []
    for table, part, kind, fill in (
        (speed_table(line, view), "generation", "int", 70),
        (batch_table(line, view), "segment", "bigint", 100),
    ):
        body = sql.SQL(", ").join(columns)
        name = sql.Identifier(part)
        statements.append(create.format(table, name, sql.SQL(kind), body, name, names(cell_key(view)), sql.Literal(fill)))
        statements.append(comment.format(table, sql.Literal(f"cells of {view.name}, by {part}")))
    return statements
