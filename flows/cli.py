"""The `seam` command. Each group of commands is a module of `flows/commands`; this file only lists them."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

from flows.console import run_command

COMMANDS = ("stack", "produce", "speed", "nightly", "query", "audit", "demo")

app = typer.Typer(
    name="seam",
    help="A lambda architecture that is exact: every event counts once, on either side of the seam.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _seam(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        print(version_of("seam"))
        raise typer.Exit


for name in COMMANDS:
    if find_spec(f"flows.commands.{name}"):
        import_module(f"flows.commands.{name}").register(app)


def main() -> None:
    arguments = sys.argv[1:]
    sys.exit(run_command(lambda: app(arguments, prog_name="seam", standalone_mode=False), as_json="--json" in arguments))


if __name__ == "__main__":
    main()
