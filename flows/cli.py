"""The `seam` command. Each group of commands is a module of `flows/commands`; this file only lists them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flows.commands import audit, demo, nightly, produce, query, speed, stack
from flows.console import run_command

COMMANDS = (demo, stack, produce, speed, nightly, query, audit)

app = typer.Typer(
    name="seam",
    help="A lambda architecture that is exact: every event counts once, on either side of the seam.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(version("seam"))
        except PackageNotFoundError:
            print("not installed: make setup")
        raise typer.Exit


@app.callback()
def _seam(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")] = False,
) -> None: ...


for commands in COMMANDS:
    commands.register(app)


def main() -> None:
    arguments = sys.argv[1:]
    sys.exit(run_command(lambda: app(arguments, prog_name="seam"), as_json="--json" in arguments))


if __name__ == "__main__":
    main()
