"""Runs the batch layer's steps against the configured services and says how far they are."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from batch_layer.ingest import Ingested
from batch_layer.night import NightReport, RunStep, ingest, plan, run_night
from batch_layer.plan import Step
from batch_layer.rebuild import RebuildReport, run_rebuild
from batch_layer.retries import with_retries
from batch_layer.workplace import Workplace
from flows.console import note
from infra.crash import CrashPoint
from infra.settings import Settings
from infra.stack import endpoints
from views.registry import ALL_VIEWS

if TYPE_CHECKING:
    from rich.status import Status

T = TypeVar("T")


def run_plainly(name: str, work: Callable[[], T]) -> T:
    """One step without Prefect, tried again by the same rule."""
    return with_retries(work, on_retry=lambda error, delay: note(f"{name}: {error} Trying again in {delay:g} s."))


class Shift:
    """One piece of batch work: opens the workplace, runs the steps, shows each with its duration, closes everything."""

    def __init__(self, settings: Settings, run_step: RunStep) -> None:
        self._settings = settings
        self._run_step = run_step
        self._status: Status | None = None

    def night(self) -> NightReport:
        with self._workplace() as place:
            return run_night(place, self._step, self._progress)

    def rebuild(self, *, publish: bool) -> RebuildReport:
        with self._workplace() as place:
            return run_rebuild(place, self._step, publish=publish)

    def ingest(self) -> Ingested:
        with self._workplace() as place:
            return self._step("ingest", lambda: ingest(place, self._progress))

    def plan(self) -> list[Step]:
        with self._workplace() as place:
            return plan(place)

    @contextmanager
    def _workplace(self) -> Iterator[Workplace]:
        found = endpoints(self._settings)
        crash = CrashPoint.from_setting(os.environ.get("SEAM_CRASH_AT", ""))
        with Workplace(self._settings, found.kafka_bootstrap, found.database_url, ALL_VIEWS, crash=crash) as place:
            yield place

    def _step(self, name: str, work: Callable[[], T]) -> T:
        began = time.monotonic()
        with self._shown(name):
            result = self._run_step(name, work)
        note(f"{name:<10}{time.monotonic() - began:7.1f} s")
        return result

    @contextmanager
    def _shown(self, name: str) -> Iterator[None]:
        """A moving line while a step works, on a terminal."""
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console

        with Console(stderr=True).status(f"{name} …") as self._status:
            yield
        self._status = None

    def _progress(self, done: int, planned: int) -> None:
        if self._status is not None:
            self._status.update(f"ingest … {done:,} of {planned:,} offsets")
        elif done < planned:
            note(f"ingest: {done:,} of {planned:,} offsets")
