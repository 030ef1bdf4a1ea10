"""What the same count costs without Spark: a plain consumer, a set of ids and a dictionary of cells, kept in memory only.

It checks less than the event rules ask for and survives nothing; it is here so that nobody takes Spark for the cheap way.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition

from infra.settings import load_settings


def main(task: dict[str, Any]) -> dict[str, Any]:
    settings = load_settings()
    consumer = Consumer({"bootstrap.servers": settings.kafka_bootstrap, "group.id": "plain", "enable.auto.commit": False})
    partitions = consumer.list_topics(settings.topic).topics[settings.topic].partitions
    consumer.assign([TopicPartition(settings.topic, partition, 0) for partition in partitions])
    cells: dict[tuple[str, str, str], list[int]] = {}
    seen: set[str] = set()
    left, began, cpu = task["deliveries"], 0.0, 0.0
    while left:
        messages = consumer.consume(10_000, 1.0)
        if not began and messages:
            began, cpu = time.monotonic(), time.process_time()
        left -= len(messages)
        for message in messages:
            event = orjson.loads(message.value())
            if event["transaction_id"] not in seen:
                seen.add(event["transaction_id"])
                cell = cells.setdefault((event["merchant_id"], event["currency"], event["event_time"][:16]), [0, 0])
                cell[0] += 1
                cell[1] += event["amount_cents"]
    seconds = time.monotonic() - began
    consumer.close()
    return {"rate": task["deliveries"] / seconds, "cpu": time.process_time() - cpu, "events": len(seen), "cells": len(cells)}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(sys.argv[1]))))
