"""Events of one merchant that nobody else uses, sent at random moments and looked for by the merged read, as a user would.

They share a key, so they are counted in the order of sending: the answer's count says which of them can be seen.
"""

from __future__ import annotations

import json
import random
import threading
import time
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from confluent_kafka import Producer

from serving.errors import SeamError
from serving.store import database, read
from serving.store.records import Query
from views.revenue_by_merchant import VIEW

MERCHANT = "canary"
EVERY_SECONDS = 0.2
LOOK_EVERY_SECONDS = 0.01


class Canaries:
    """Sends and looks in two threads while its `with` block runs; `seconds` then holds how long each took to be seen."""

    def __init__(self, bootstrap: str, topic: str, database_url: str, line: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0, "partitioner": "murmur2_random"})
        self._topic, self._url, self._line = topic, database_url, line
        self._sent: list[float] = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._look)]
        self._seen_at: list[float] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(timeout=15)

    def waits(self, start: float, end: float) -> list[float]:
        """Seconds from sending to seeing, of the canaries sent between two instants."""
        pairs = zip(self._sent, self._seen_at, strict=False)
        return [seen - sent for sent, seen in pairs if start <= sent < end]

    def _send(self) -> None:
        while not self._end.wait(random.uniform(0.5, 1.5) * EVERY_SECONDS):
            event = {
                "transaction_id": f"canary-{len(self._sent)}-{time.time_ns()}",
                "event_time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
                "account_id": MERCHANT,
                "merchant_id": MERCHANT,
                "amount_cents": 1,
                "currency": "EUR",
                "kind": "purchase",
            }
            self._sent.append(time.time())
            self._producer.produce(self._topic, json.dumps(event).encode(), MERCHANT.encode())
            self._producer.poll(0)
        self._producer.flush(10)

    def _look(self) -> None:
        asked = Query(key={"merchant_id": MERCHANT, "currency": "EUR"}, total=True)
        with database.connect(self._url) as conn:
            give_up = 0.0
            while not self._end.is_set() or (len(self._seen_at) < len(self._sent) and time.time() < give_up):
                give_up = give_up if self._end.is_set() else time.time() + 10
                try:
                    rows = read.read(conn, self._line, VIEW, asked).rows
                except SeamError:
                    rows = []
                now = time.time()
                count = int(str(rows[0]["transactions"])) if rows else 0
                self._seen_at += [now] * (count - len(self._seen_at))
                time.sleep(LOOK_EVERY_SECONDS)
