"""Entry point of `make bench`: chooses parts and sizes, runs them one after the other, shows what they found."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import Result, machine, show
from benchmarks.services import BenchmarkFailed, services

PARTS = ("speed", "latency", "memory", "nights", "http")
QUICK_NOTE = "--quick shows that everything runs; its figures mean nothing."


def main() -> int:
    options = _options()
    logging.getLogger("seam.producer").setLevel(logging.CRITICAL)  # what was not acknowledged fails the run anyway
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    about: dict[str, Any] = {"machine": machine(), "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z", "command": " ".join(sys.argv[1:])}
    _say(f"{about['machine']['cores']} cores, {about['machine']['memory_gib']} GiB, load {about['machine']['load_before']}")
    results: list[Result] = []
    try:
        for part in [part for part in PARTS if part in options.parts]:
            began = time.monotonic()
            result = _runner(part, options)()
            result.figures["seconds"] = round(time.monotonic() - began, 1)
            results.append(result)
            if not options.json:
                show(result, judged=not options.quick)
            _save(options.save, about, results)
    except BenchmarkFailed as failure:
        _say(f"failed: {failure}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; everything that was started is stopped")
        return 130
    if options.json:
        print(json.dumps(about | {"parts": [result.to_json() for result in results]}, indent=2))
    missed = [target.name for result in results for target in result.targets if not target.met]
    if missed and not options.quick:
        _say(f"missed: {'; '.join(missed)}")
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures Seam on a Kafka, a PostgreSQL and Spark of its own. All parts take about 20 minutes on two cores.",
        epilog="Exit code 1: a count was not exact, a part failed, or a target was missed (targets are not judged with --quick).",
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of: {', '.join(PARTS)}; all if left out")
    parser.add_argument("--events", type=int, default=0, help="distinct events of the preloaded topic of `speed` (2,000,000)")
    parser.add_argument("--pairs", type=int, default=0, help="pairs of runs in `speed`, and rounds in `nights` (3 and 2)")
    parser.add_argument("--quick", action="store_true", help=f"small sizes, in some minutes: {QUICK_NOTE}")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write the JSON, with every single run, to this file")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}; choose from: {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    return options


def _runner(part: str, options: argparse.Namespace) -> Callable[[], Result]:
    def run() -> Result:
        if part == "http":
            from benchmarks import bench_http

            return bench_http.bench(seconds=1.0 if options.quick else 3.0, rounds=1 if options.quick else 3)
        with services() as running:
            _say(f"{part}: Kafka and PostgreSQL are up")
            return _with_services(part, options, running)

    return run


def _with_services(part: str, options: argparse.Namespace, running: Any) -> Result:
    quick = options.quick
    if part == "speed":
        from benchmarks import speed

        return speed.bench(
            running, events=options.events or (400_000 if quick else 2_000_000), pairs=options.pairs or (1 if quick else 3), say=_say
        )
    if part == "latency":
        from benchmarks import latency

        return latency.bench(running, warm_up=5 if quick else 30, seconds=5 if quick else 45, say=_say)
    if part == "memory":
        from benchmarks import memory

        return memory.bench(running, seen=1_000_000 if quick else 10_000_000, backlog=400_000 if quick else 5_000_000, say=_say)
    from benchmarks import nights

    return nights.bench(running, day=20_000 if quick else 100_000, rounds=options.pairs or (1 if quick else 2), say=_say)


def _save(file: Path | None, about: dict[str, Any], results: list[Result]) -> None:
    if file:
        file.write_text(json.dumps(about | {"parts": [result.to_json() for result in results]}, indent=2) + "\n")


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
