"""One night in a process of its own, with what each step took. Spark is started first, as a step that is not part of the night."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from batch_layer.night import run_night
from batch_layer.workplace import Workplace
from benchmarks.resources import cpu_of, java_of, server_cpu
from infra.settings import load_settings
from views.registry import ALL_VIEWS

T = TypeVar("T")


def main(task: dict[str, Any]) -> dict[str, Any]:
    settings = load_settings()
    steps: dict[str, dict[str, float]] = {}

    def cpu() -> float:
        java = java_of(os.getpid())
        return cpu_of(os.getpid()) + (cpu_of(java) if java else 0.0) + server_cpu(task["postgres"])

    def step(name: str, work: Callable[[], T]) -> T:
        began, cpu_began = time.monotonic(), cpu()
        done = work()
        steps[name] = {"seconds": time.monotonic() - began, "cpu": cpu() - cpu_began}
        return done

    with Workplace(settings, settings.kafka_bootstrap, settings.database_url.get_secret_value(), ALL_VIEWS) as place:
        step("start Spark", lambda: place.spark().range(1000).selectExpr("sum(id)").collect())
        report = run_night(place, step)
    return {
        "steps": steps,
        "ingested": report.ingested,
        "counted": report.counted,
        "days": len(report.days_touched),
        "published": report.published,
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(sys.argv[1]))))
