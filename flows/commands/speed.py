"""`seam speed`: the speed layer in this process, until it is asked to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.console import log_to_stderr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from infra.crash import CrashPoint
    from infra.settings import Settings
    from speed_layer.worker import Committed

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def register(app: typer.Typer) -> None:
    app.command()(speed)


def speed(
    until_caught_up: Annotated[bool, typer.Option("--until-caught-up", help="Stop at the log end seen at start.")] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="Replace a speed layer that is running on this line.")] = False,
    from_master: Annotated[
        bool, typer.Option("--from-master", help="Read what Kafka no longer holds from the master dataset, then go on with Kafka.")
    ] = False,
) -> None:
    """Count the log as it grows. Ctrl-C or SIGTERM ends it after the epoch under way, and the next start replays nothing."""
    import logging

    from infra.crash import CrashPoint
    from infra.settings import load_settings

    crash = CrashPoint.from_setting(os.environ.get("SEAM_CRASH_AT", ""))
    log_to_stderr(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    with progress_line() as watch:
        run_speed(load_settings(), until_caught_up=until_caught_up, take_over=take_over, from_master=from_master, crash=crash, watch=watch)


def run_speed(
    settings: Settings,
    *,
    until_caught_up: bool,
    take_over: bool,
    from_master: bool,
    crash: CrashPoint,
    watch: Callable[[Committed], None],
) -> None:
    """Wire the speed layer to the configured services and run it; a signal asks it to stop."""
    from infra.stack import endpoints
    from speed_layer.run import SpeedLayer, keep_running
    from speed_layer.session import end_session, living_session

    found = endpoints(settings)
    stop = threading.Event()

    def session() -> SparkSession:
        living = living_session(settings)
        _catch_signals(stop)  # again: a new Spark session sets a handler of its own for SIGINT
        return living

    layer = SpeedLayer(
        settings,
        found.kafka_bootstrap,
        found.database_url,
        session,
        until_caught_up=until_caught_up,
        take_over=take_over,
        from_master=from_master,
        stop=stop,
        crash=crash,
        watch=watch,
    )
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    _catch_signals(stop)
    try:
        keep_running(layer)
    finally:
        end_session()
        _set_handlers(before)


def _catch_signals(stop: threading.Event) -> None:
    def ask(number: int, frame: object) -> None:
        if stop.is_set():  # asked twice: leave at once, the store holds whole epochs only
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop.set()

    _set_handlers(dict.fromkeys(_SIGNALS, ask))


def _set_handlers(handlers: dict[signal.Signals, Any]) -> None:
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def progress_line() -> Iterator[Callable[[Committed], None]]:
    """One line that keeps up with the epochs, on a terminal; elsewhere the log has a line for each."""
    if not sys.stderr.isatty():
        yield lambda committed: None
        return
    from rich.console import Console

    read = counted = 0
    with Console(stderr=True).status("speed layer: starting Spark …") as line:

        def watch(committed: Committed) -> None:
            nonlocal read, counted
            read, counted = read + committed.counts.read, counted + committed.counts.counted
            mark = f"{committed.watermark:%Y-%m-%d %H:%M:%S}Z" if committed.watermark else "none yet"
            line.update(f"speed layer: epoch {committed.epoch:,}, read {read:,}, counted {counted:,}, watermark {mark}")

        yield watch
