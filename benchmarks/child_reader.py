"""The limit: the same stream, lifted by the same expressions, to nowhere. Runs as a process of its own."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from infra.settings import load_settings
from infra.spark import spark_session
from speed_layer.source import prepare_session, read_deliveries, throw_away_checkpoint
from views.lift import lift
from views.registry import ALL_VIEWS


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Reads the topic's first `deliveries` and reports when each micro-batch ended and what it read."""
    settings = load_settings()
    views = [view for view in ALL_VIEWS if view.name in task["views"]]
    spark = spark_session(settings, "seam bench reader")
    prepare_session(spark)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    start = dict.fromkeys(range(task["partitions"]), 0)
    deliveries = read_deliveries(spark, settings.kafka_bootstrap, settings.topic, start, settings.max_events_per_epoch)
    with throw_away_checkpoint(settings.run_folder) as checkpoint:
        writer = lift(deliveries, views).writeStream.format("noop").option("checkpointLocation", checkpoint.as_uri())
        query = writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()
        while _read_to(query.lastProgress, settings.topic) < task["deliveries"]:
            if not query.isActive:
                raise SystemExit(f"the stream ended: {query.exception()}")
            time.sleep(0.2)
        progress = [json.loads(each.json) for each in query.recentProgress]
        query.stop()
    spark.stop()
    return {"steps": [_step(each) for each in progress if each["numInputRows"]], "durations": [each["durationMs"] for each in progress]}


def _read_to(progress: Any, topic: str) -> int:
    if progress is None:
        return 0
    end = json.loads(progress.json)["sources"][0]["endOffset"]
    return sum(end[topic].values()) if end else 0


def _step(progress: dict[str, Any]) -> tuple[float, int]:
    """When a micro-batch ended and what it read."""
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    return began + progress["durationMs"]["triggerExecution"] / 1000, progress["numInputRows"]


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(sys.argv[1]))))
