"""The flow "nightly": the steps of a night as tasks, and the same steps without a Prefect server.

Wiring only. Tasks share one process, one Spark session and one connection, opened when first needed; between them go
plain values, never frames. A failed step is tried again only where its error says that this may help.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.schedules import Cron

from batch_layer.night import NightReport
from batch_layer.retries import DELAYS, is_retryable
from flows.night_shift import Shift
from infra.settings import load_settings

T = TypeVar("T")


@flow(name="nightly", persist_result=False, log_prints=False)
def nightly(line: str = "") -> NightReport:
    """Seal, ingest, recompute, check, load, publish, expire: one night of a line."""
    settings = load_settings(**({"line": line} if line else {}))
    return Shift(settings, run_as_task).night()


def run_as_task(name: str, work: Callable[[], T]) -> T:
    """One step as a Prefect task."""
    step = task(
        name=name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=len(DELAYS),
        retry_delay_seconds=list(DELAYS),
        retry_condition_fn=_may_help,
    )(work)
    return step()


def _may_help(tried: Any, run: Any, state: State[Any]) -> bool:
    try:
        state.result()
    except Exception as error:
        return is_retryable(error)
    return False


def serve_nightly(cron: str = "0 2 * * *") -> None:
    """Register the flow with the configured Prefect server and run it there by the clock (UTC), one at a time."""
    nightly.serve(name="nightly", schedule=Cron(cron, timezone="UTC"), limit=1, global_limit=1, pause_on_shutdown=False)


if __name__ == "__main__":
    serve_nightly()
