"""`seam up`, `seam down`, `seam status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.console import AsJson, note, print_json, print_table

if TYPE_CHECKING:
    from flows.status import Status

Only = Annotated[str, typer.Option("--only", metavar="PARTS", help="Some of kafka,postgres,prefect,speed,api; all of them if left out.")]


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(down)
    app.command()(status)


def up(only: Only = "", as_json: AsJson = False) -> None:
    """Start what is not running of the stack, and return when it is ready."""
    from flows.bring_up import bring_up
    from flows.status import read_status
    from infra.settings import load_settings
    from infra.stack import chosen

    settings = load_settings()
    bring_up(settings, chosen(only), note)
    _show(read_status(settings), as_json)


def down(as_json: AsJson = False) -> None:
    """Stop the stack, the speed layer first. What it stored is kept."""
    from flows.bring_up import bring_down
    from infra.settings import load_settings
    from infra.stack import running

    settings = load_settings()
    before = sorted(running(settings))
    bring_down(settings, note)
    if as_json:
        print_json({"stopped": before})
    elif not before:
        note(f"Nothing runs in {settings.home}.")


def status(as_json: AsJson = False) -> None:
    """Say what runs, where it answers, and how far the line has come."""
    from flows.status import read_status
    from infra.settings import load_settings

    _show(read_status(load_settings()), as_json)


def _show(found: Status, as_json: bool) -> None:
    if as_json:
        print_json(found.to_json())
        return
    rows = [
        ("home", found.home),
        ("processes", ", ".join(f"{name} {pid}" for name, pid in found.processes.items()) or "none: seam up"),
        ("Kafka", f"{found.kafka_bootstrap}, topic {found.topic}" if found.kafka_bootstrap else "not running"),
        ("database", found.masked_database_url or "not running"),
        ("API", f"{found.api_url} (key in {found.api_key_file})" if found.api_url else "not running"),
        ("Prefect", found.prefect_url or "not running"),
    ]
    if found.frontier is not None:
        age = "never" if found.stale_seconds is None else f"{found.stale_seconds:.1f} s ago"
        rows += [
            ("line", f"{found.line}: manifest {found.manifest}, seam at {found.seam}"),
            ("frontier", f"{found.frontier}, last sign of life of the speed layer: {age}"),
        ]
    if found.log_end is not None:
        lag = "" if found.lag_offsets is None else f", {'caught up' if found.caught_up else f'{found.lag_offsets:,} offsets behind'}"
        rows.append(("log end", f"{found.log_end}{lag}"))
    rows += [("problem", problem) for problem in found.problems]
    print_table("", ("", ""), rows)
