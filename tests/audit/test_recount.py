"""The naive fold: each id once, at the frontier that is asked for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from operator import attrgetter

import pytest

from serving.audit.recount import CellName, Delivery, Tally, recount
from serving.store.vectors import OffsetVector
from views.event import Reason
from views.registry import ALL_VIEWS, view_named
from views.view import View

USAGE = view_named("system_usage")
REVENUE = view_named("revenue_by_merchant")
assert USAGE is not None and REVENUE is not None
NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp())


def value(transaction_id: str, amount_cents: int = 100, time: str = "2026-03-01T12:00:00Z") -> bytes:
    fields = {"account_id": "a-1", "merchant_id": "m-1", "currency": "EUR", "kind": "purchase"}
    return json.dumps({"transaction_id": transaction_id, "event_time": time, "amount_cents": amount_cents, **fields}).encode()


@pytest.mark.parametrize("view", ALL_VIEWS, ids=attrgetter("name"))
def test_the_worked_example_of_each_view_is_recounted(view: View) -> None:
    deliveries = [Delivery(0, number, 0, json.dumps(event).encode()) for number, event in enumerate(view.worked_example.events)]

    cells = recount(deliveries, [view]).cells[view.name]
    shown = {
        (tuple(str(row[field]) for field in view.key), int(datetime.fromisoformat(str(row["window_start"])).timestamp())): {
            name: row[name] for name in view.measures
        }
        for row in view.worked_example.rows
    }
    assert {(name.key, name.window_start): cell.measures for name, cell in cells.items()} == shown


def test_each_id_counts_once_and_every_delivery_is_accounted_for() -> None:
    log = [
        Delivery(0, 0, 1, value("t-1")),
        Delivery(0, 1, 2, value("t-2")),
        Delivery(1, 0, 3, value("t-1")),
        Delivery(1, 7, 4, b"not json"),
        Delivery(1, 8, 5, None),
    ]

    truth = recount(log, [USAGE])
    assert truth.partitions == {0: Tally(2, 2, 0, 0), 1: Tally(3, 0, 1, 2)}
    assert truth.total == Tally(5, 2, 1, 2)
    assert truth.quarantine == {(1, 7): Reason.NOT_JSON, (1, 8): Reason.NO_VALUE}
    assert truth.cells["system_usage"][CellName((), NOON)].measures == {"transactions": 2}
    assert truth.conflicts == 0


def test_only_what_lies_between_the_vectors_counts() -> None:
    log = [Delivery(partition, number, 0, value(f"t-{partition}-{number}")) for partition in (0, 1, 2) for number in range(10)]

    truth = recount(log, [USAGE], OffsetVector.of({0: 7, 1: 3}), since=OffsetVector.of({0: 5}))
    assert {partition: tally.read for partition, tally in truth.partitions.items()} == {0: 2, 1: 3}


def test_of_conflicting_payloads_the_first_in_the_log_counts_and_they_are_reported() -> None:
    log = [Delivery(0, 5, 30, value("t-1", 3)), Delivery(1, 9, 10, value("t-1", 1)), Delivery(2, 0, 20, value("t-1", 2))]

    truth = recount(log, [REVENUE])
    assert truth.conflicts == 1
    assert truth.cells["revenue_by_merchant"][CellName(("m-1", "EUR"), NOON)].measures["amount_cents"] == 1


def test_of_conflicting_payloads_an_earlier_generation_goes_before_an_earlier_log_time() -> None:
    log = [Delivery(0, 5, 30, value("t-1", 3)), Delivery(1, 9, 10, value("t-1", 1))]
    cuts = [OffsetVector.of({0: 6}), OffsetVector.of({0: 6, 1: 10})]

    truth = recount(log, [REVENUE], cuts=cuts)
    assert truth.cells["revenue_by_merchant"][CellName(("m-1", "EUR"), NOON)].measures["amount_cents"] == 3


def test_sums_are_exact_beyond_64_bits() -> None:
    log = [Delivery(0, number, 0, value(f"t-{number}", 10**12)) for number in range(3)]

    cell = recount(log, [REVENUE]).cells["revenue_by_merchant"][CellName(("m-1", "EUR"), NOON)]
    assert cell.measures["amount_cents"] == 3 * 10**12
