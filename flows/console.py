"""How every command speaks: tables or JSON on standard output, errors as one line with the next command on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from serving.errors import SeamError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def run_command(action: Callable[[], object], *, as_json: bool = False) -> int:
    """Run a command and return its exit code: 1 for an expected failure, shown as one line with what to do.

    Typer ends a success with 0, a wrong call with 2 and Ctrl-C with 130; anything else is a bug and shows its trace.
    """
    try:
        action()
    except SeamError as error:
        show_error(error, as_json=as_json)
        return 1
    except OSError as error:
        full = _disk_error(error)
        if full is None:
            raise
        show_error(full, as_json=as_json)
        return 1
    return 0


def show_error(error: SeamError, *, as_json: bool = False) -> None:
    if as_json:
        fields = {name: _plain(value) for name, value in error.fields.items()}
        shown = {"code": error.code, "what": error.what, "untouched": error.untouched, "fix": error.fix, "fields": fields}
        print(json.dumps({"error": shown}), file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble((f"{error.code}: ", "bold red"), (str(error), "red" if sys.stderr.isatty() else ""))
    Console(stderr=True, soft_wrap=True, highlight=False).print(line)


def print_json(value: object) -> None:
    """One JSON document; integers of any size stay integers."""
    print(json.dumps(value, indent=2, default=_plain))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """A readable table; the columns named in `right` are aligned as numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", title_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    Console(highlight=False).print(table)


def note(line: str) -> None:
    """Progress, for people: on standard error, so that standard output stays what was asked for."""
    print(line, file=sys.stderr, flush=True)


def log_to_stderr(level: int = logging.INFO) -> None:
    """For commands that run long: `event key=value` lines with UTC instants."""
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("seam").setLevel(level)


def _disk_error(error: OSError) -> SeamError | None:
    from infra.disk import FULL, disk_full

    return disk_full(error.filename or "the home") if error.errno in FULL else None


def _plain(value: Any) -> object:
    return value.to_json() if hasattr(value, "to_json") else str(value)
