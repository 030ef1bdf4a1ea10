"""`seam query`, `seam views`, `seam manifests`, `seam rollback`: they ask the store directly, so they work without the API."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from flows.console import AsJson, note, print_json

if TYPE_CHECKING:
    from serving.store.database import Connection
    from serving.store.records import Answer, Manifest
    from views.view import View

ROWS_IN_A_TABLE = 100
"""More are for a program: ask for json or csv, or say --limit."""


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


Line = Annotated[str, typer.Option("--line", help="The line to ask; else the one of the settings.")]


def register(app: typer.Typer) -> None:
    app.command()(query)
    app.command()(views)
    app.command()(manifests)
    app.command()(rollback)


def query(
    view: Annotated[str, typer.Argument(help="Name of the view; `seam views` lists them.")],
    key: Annotated[list[str] | None, typer.Option("--key", metavar="FIELD=VALUE", help="Only rows with this key; may be repeated.")] = None,
    start: Annotated[str | None, typer.Option("--from", metavar="INSTANT", help="Only windows that start at or after it.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="INSTANT", help="Only windows that start before it.")] = None,
    total: Annotated[bool, typer.Option("--total", help="Fold all windows of a key into one row.")] = False,
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="MANIFEST", help="The rows at this manifest's cut.")] = None,
    line: Line = "",
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="N", help=f"Most rows; a table shows {ROWS_IN_A_TABLE} unless told.")
    ] = None,
    cursor: Annotated[str | None, typer.Option("--cursor", help="`next` of the page before.")] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print the rows.")] = Format.TABLE,
    as_json: AsJson = False,
) -> None:
    """Print merged rows of a view, each event counted once, with their provenance."""
    from serving.question import to_query
    from serving.store import read

    asked = _view(view)
    form = Format.JSON if as_json else form
    options = {"from": start, "to": end, "total": "true" if total else None, "as_of": as_of, "limit": limit, "cursor": cursor}
    given = [*_pairs(key or []), *((name, text) for name, text in options.items() if text is not None)]
    question = to_query(asked, given, default_limit=ROWS_IN_A_TABLE if form is Format.TABLE else None, most_rows=None)
    with _store(line) as (conn, name):
        answer = read.read(conn, name, asked, question)
    _print_answer(asked, answer, form)


def views(as_json: AsJson = False) -> None:
    """List the views that can be asked."""
    from serving.shown import view_json
    from views.registry import ALL_VIEWS

    if as_json:
        print_json([view_json(view) for view in ALL_VIEWS])
        return
    columns = ("view", "key", "window", "measures", "fingerprint")
    rows = [(v.name, ", ".join(v.key), str(v.window.length), ", ".join(v.measures), v.fingerprint) for v in ALL_VIEWS]
    _print_wide(columns, rows)


def manifests(line: Line = "", as_json: AsJson = False) -> None:
    """List what was published and can be rolled back to, oldest first."""
    from serving.shown import manifest_json
    from serving.store.manifests import list_manifests

    with _store(line) as (conn, name):
        found = list_manifests(conn, name)
    if as_json:
        print_json([manifest_json(manifest) for manifest in found])
    else:
        _print_manifests(found)


def rollback(
    manifest: Annotated[int, typer.Argument(help="Id of a retained manifest, older or newer.")], line: Line = "", as_json: AsJson = False
) -> None:
    """Move the pointer to another retained manifest. Answers stay complete: the speed side fills what lies beyond its cut.

    Guarantees: one transaction; run twice, the second changes nothing.
    """
    from serving.shown import manifest_json
    from serving.store.manifests import roll_back
    from serving.store.records import ManifestId

    with _store(line) as (conn, name):
        pointed = roll_back(conn, name, ManifestId(manifest))
    if as_json:
        print_json(manifest_json(pointed))
    else:
        print(f"Manifest {pointed.manifest} is current: generation {pointed.generation}, cut {pointed.cut}.")


@contextmanager
def _store(line: str) -> Iterator[tuple[Connection, str]]:
    """A connection to the store of these settings, and the line to ask."""
    from infra.settings import load_settings
    from infra.stack import database_address
    from serving.errors import StackFault
    from serving.store import database

    settings = load_settings()
    url = settings.database_url.get_secret_value() or database_address(settings)
    if not url:
        raise StackFault(f"PostgreSQL is not running in {settings.home}.", fix="Run: seam up", home=str(settings.home))
    with database.connect(url, name="seam-query") as conn:
        yield conn, line or settings.line


def _view(name: str) -> View:
    from serving.errors import UnknownView
    from serving.question import shown
    from views.registry import ALL_VIEWS, view_named

    view = view_named(name)
    if view is None:
        raise UnknownView(f"There is no view {shown(name)}, only: {', '.join(v.name for v in ALL_VIEWS)}.", fix="Run: seam views")
    return view


def _pairs(keys: Sequence[str]) -> list[tuple[str, str]]:
    from serving.errors import BadRequest
    from serving.question import OPTIONS, shown

    pairs = [(field, value) for field, _, value in (key.partition("=") for key in keys)]
    for key, (field, _) in zip(keys, pairs, strict=True):
        if "=" not in key or field in OPTIONS:
            raise BadRequest(f"--key {shown(key)} names no key field.", fix="Write it as in --key merchant_id=m-1.")
    return pairs


def _print_answer(view: View, answer: Answer, form: Format) -> None:
    columns = [*view.key, "window_start", "window_end", *view.measures, "id_checksum", "final"]
    if form is Format.JSON:
        print_json(answer.to_json())
        return
    if form is Format.CSV:
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_csv_cell(row[column]) for column in columns] for row in answer.rows)
    else:
        shown = [column for column in columns if column != "id_checksum"]
        _print_wide(shown, ([row[column] for column in shown] for row in answer.rows), right=view.measures)
        if answer.next is not None:
            print(f"There are more rows: --limit N, --format csv, or --cursor {answer.next}")
    say = note if form is Format.CSV else print
    say(_provenance_line(answer))


def _print_wide(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[str] = ()) -> None:
    """As wide as the rows are: a folded instant cannot be read, and a terminal that is too narrow breaks lines by itself."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_table_cell(value) for value in row))
    Console(highlight=False, markup=False, width=1_000, soft_wrap=True).print(table)


def _table_cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    # An id may hold anything, also what would move the cursor of a terminal.
    text = str(value)
    return text if text.isprintable() else ascii(text)


def _csv_cell(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _provenance_line(answer: Answer) -> str:
    p = answer.provenance
    age = "the speed layer never spoke" if p.stale_seconds is None else f"stale {p.stale_seconds:.1f} s"
    many = "1 row" if len(answer.rows) == 1 else f"{len(answer.rows):,} rows"
    return (
        f"{many} at manifest {p.manifest}, cut {p.cut}, frontier {p.frontier}: "
        f"{p.from_batch:,} events from batch, {p.from_speed:,} from speed, {age}"
    )


def _print_manifests(found: Sequence[Manifest]) -> None:
    columns = ("id", "generation", "cut", "published_at", "days", "segments", "current")
    rows = [
        (
            m.manifest,
            m.generation,
            str(m.cut),
            f"{m.published_at:%Y-%m-%dT%H:%M:%SZ}",
            len({d for _, d in m.segments}),
            len(m.segments),
            m.current,
        )
        for m in found
    ]
    _print_wide(columns, rows, right=("id", "generation", "days", "segments"))
