"""Hand-made lifted tables, and a naive reading of them one row at a time: what an epoch must be, written the slow way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import xxhash

START = datetime(2026, 3, 1, 12, tzinfo=UTC)

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("log_time", pa.timestamp("us", "UTC")),
        ("value_hash", pa.int64()),
        ("reason", pa.string()),
        ("masked", pa.string()),
        ("id_hash", pa.int64()),
        ("id_hash2", pa.int64()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("window_60", pa.int64()),
        ("window_86400", pa.int64()),
        ("account_id", pa.string()),
        ("amount_cents", pa.int64()),
        ("currency", pa.string()),
        ("merchant_id", pa.string()),
    ]
)


@dataclass(frozen=True)
class Delivery:
    """One copy of an event; `name` None is one that cannot be an event."""

    partition: int
    position: int
    name: str | None
    log_second: int
    event_second: int = 0
    cents: int = 100
    merchant: str = "m-1"

    @property
    def log_time(self) -> datetime:
        return START + timedelta(seconds=self.log_second)

    @property
    def event_time(self) -> datetime:
        return START + timedelta(seconds=self.event_second)

    @property
    def id_hash(self) -> int:
        return signed(xxhash.xxh64_intdigest((self.name or "").encode(), 42))

    @property
    def value_hash(self) -> int:
        return signed(xxhash.xxh64_intdigest(repr(self).encode(), 42))


def signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def second_hash(name: str) -> int:
    return signed(xxhash.xxh64_intdigest(name.encode(), xxhash.xxh64_intdigest(b"seam", 42)))


def table(deliveries: Iterable[Delivery], chunk: int = 3) -> pa.Table:
    """As `toArrow` gives it: one row per delivery, in several chunks."""
    rows = [_row(delivery) for delivery in deliveries]
    chunks = [pa.Table.from_pylist(rows[at : at + chunk], schema=SCHEMA) for at in range(0, len(rows), chunk)]
    return pa.concat_tables(chunks) if chunks else SCHEMA.empty_table()


def _row(delivery: Delivery) -> dict[str, object]:
    base: dict[str, object] = {
        "partition": delivery.partition,
        "offset": delivery.position,
        "log_time": delivery.log_time,
        "value_hash": delivery.value_hash,
    }
    if delivery.name is None:
        return base | {"reason": "not_json", "masked": "xx"}
    seconds = int(delivery.event_time.timestamp())
    return base | {
        "id_hash": delivery.id_hash,
        "id_hash2": second_hash(delivery.name),
        "event_time": delivery.event_time,
        "window_60": seconds - seconds % 60,
        "window_86400": seconds - seconds % 86400,
        "account_id": "a-1",
        "amount_cents": delivery.cents,
        "currency": "EUR",
        "merchant_id": delivery.merchant,
    }


@dataclass(frozen=True)
class Expected:
    read: Counter[int]
    counted: Counter[int]
    duplicates: Counter[int]
    quarantined: Counter[int]
    winners: Sequence[Delivery]


def naive(deliveries: Iterable[Delivery], counted_before: Iterable[str]) -> Expected:
    """One row after another, in the order that decides which delivery of an id counts."""
    known, winners = set(counted_before), []
    read, counted, duplicates, quarantined = Counter[int](), Counter[int](), Counter[int](), Counter[int]()
    for delivery in sorted(deliveries, key=lambda d: (d.log_second, d.partition, d.position)):
        read[delivery.partition] += 1
        if delivery.name is None:
            quarantined[delivery.partition] += 1
        elif delivery.name in known:
            duplicates[delivery.partition] += 1
        else:
            known.add(delivery.name)
            counted[delivery.partition] += 1
            winners.append(delivery)
    return Expected(read, counted, duplicates, quarantined, winners)
