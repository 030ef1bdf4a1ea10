"""The flow that keeps the speed layer running.

It runs the same loop as `seam speed`: a retryable failure starts the next life from the store, later each time; being
fenced, and every other failure, fails the flow. One at a time: while another speed layer gives signs of life, the flow
is refused, and `serve_speed` runs no second one.
"""

from __future__ import annotations

from prefect import flow, get_run_logger

from flows.commands.speed import run_speed
from infra.crash import CrashPoint
from infra.settings import load_settings
from speed_layer.worker import Committed


@flow(name="speed", log_prints=False, persist_result=False)
def speed(until_caught_up: bool = False, take_over: bool = False, from_master: bool = False) -> None:
    """Count the log as it grows, until asked to stop or, if so told, caught up."""
    logger = get_run_logger()

    def watch(committed: Committed) -> None:
        logger.debug("epoch %d: read %d, counted %d", committed.epoch, committed.counts.read, committed.counts.counted)

    run_speed(
        load_settings(), until_caught_up=until_caught_up, take_over=take_over, from_master=from_master, crash=CrashPoint(), watch=watch
    )


def serve_speed() -> None:
    """Register the flow with the configured Prefect server and run it there when asked, one at a time."""
    speed.serve(name="speed", limit=1, global_limit=1)


if __name__ == "__main__":
    serve_speed()
