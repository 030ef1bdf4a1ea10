"""A producer with an open schedule: delivery n is due at start + n / rate, whatever became of the ones before.

Everything is made before the first is due, so that the generator does not take the CPU of what is measured.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from threading import Event as StopSignal
from typing import Any

from benchmarks.tapes import REDELIVERED, require_sent, tape_of
from infra.deliveries import Chunk, planned_deliveries
from infra.producer import Sent, open_producer, send_all
from infra.settings import load_settings


def main(task: dict[str, Any]) -> dict[str, Any]:
    settings = load_settings()
    producer, partitions = open_producer(settings.kafka_bootstrap, settings.topic)
    rate, events = task["rate"], int(task["rate"] * task["seconds"] / (1 + REDELIVERED.duplicates))
    chunks = list(planned_deliveries(tape_of(2), REDELIVERED, 0, events, partitions=partitions))
    gc.freeze()
    late_by: list[float] = []
    handed_over = 0
    began, began_wall = time.monotonic(), time.time()

    def note(chunk: Chunk | None, sent: Sent) -> None:
        nonlocal handed_over
        if chunk is not None:
            handed_over += len(chunk.deliveries)
            late_by.append(time.monotonic() - (began + handed_over / rate))

    sent = send_all(producer, settings.topic, chunks, ledger=None, rate=rate, stop=StopSignal(), progress=note)
    require_sent(sent)
    return {"began": began_wall, "deliveries": sent.acknowledged, "rate": sent.acknowledged / sent.seconds, "late_by": late_by}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(sys.argv[1]))))
