"""`seam demo`: the whole story on an empty folder, in one go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    events: Annotated[int, typer.Option(help="Events of day one; day two has half as many.", min=1_000)] = 200_000,
    home: Annotated[Path | None, typer.Option(help="Folder of the demo; made anew. Default: demo under SEAM_HOME.")] = None,
    keep_running: Annotated[bool, typer.Option(help="Leave Kafka and PostgreSQL running, to look around.")] = False,
) -> int:
    """Tell the whole story: two days of events, two nights, a kill, a rollback, and an audit of every cell."""
    from flows.demo import run_demo
    from infra.settings import load_settings

    chosen = load_settings()
    settings = load_settings(home=(home or chosen.home / "demo").resolve())
    exact = run_demo(settings, _console(), events=events, keep_running=keep_running)
    return 0 if exact else 1


def _console() -> Console:
    """Wide enough for the widest table also where the output is a file."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=120)
