"""The speed layer as it runs, with a note of every commit. Runs as a process of its own, until caught up or SIGTERM."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from infra.settings import load_settings
from speed_layer.run import SpeedLayer, live
from speed_layer.session import end_session, living_session
from speed_layer.worker import Committed
from views.registry import ALL_VIEWS


class _Loaded(logging.Handler):
    """Keeps the line in which the speed layer says how long its state took to load."""

    line = ""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message.startswith("state loaded"):
            self.line = message


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Reports when each epoch was committed, what it read and counted, and how far it reached."""
    settings = load_settings()
    loaded = _Loaded()
    logging.basicConfig(level=logging.INFO, handlers=[loaded, logging.StreamHandler()])
    stop = threading.Event()
    commits: list[tuple[float, int, int, dict[str, int]]] = []

    def watch(committed: Committed) -> None:
        commits.append((time.time(), committed.counts.read, committed.counts.counted, committed.until.to_json()))

    layer = SpeedLayer(
        settings,
        settings.kafka_bootstrap,
        settings.database_url.get_secret_value(),
        lambda: living_session(settings),
        until_caught_up=task["until_caught_up"],
        views=[view for view in ALL_VIEWS if view.name in task["views"]],
        stop=stop,
        watch=watch,
    )
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    live(layer)
    end_session()
    return {"commits": commits, "loaded": dict(part.partition("=")[::2] for part in loaded.line.split()[2:])}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(sys.argv[1]))))
