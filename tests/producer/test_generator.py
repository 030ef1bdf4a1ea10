"""Made-up events: what they are, and that any of them can be made again alone."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
import pytest

from infra.generator import LATE_BY_AT_MOST, Tape, events_at
from serving.audit.judge import Event, judge
from serving.errors import BadRequest

DAY = datetime(2026, 3, 1, tzinfo=UTC)
TAPE = Tape(seed=7, start=DAY, gap=timedelta(days=1) / 20_000, late=0.01)


def numbers(first: int, until: int) -> np.ndarray:
    return np.arange(first, until, dtype=np.uint64)


def made(tape: Tape, first: int, until: int) -> list[Event]:
    judged = [judge(value) for value in events_at(tape, numbers(first, until)).values]
    assert all(isinstance(event, Event) for event in judged)
    return judged  # type: ignore[return-value]


def test_an_event_is_the_same_whatever_slice_it_is_made_in() -> None:
    whole = events_at(TAPE, numbers(0, 9_000))
    part = events_at(TAPE, numbers(4_321, 4_400))
    scattered = events_at(TAPE, np.array([8_999, 17, 4_350], dtype=np.uint64))

    assert part.values == whole.values[4_321:4_400] and part.keys == whole.keys[4_321:4_400]
    assert scattered.values == [whole.values[8_999], whole.values[17], whole.values[4_350]]


def test_the_first_event_of_a_known_tape_never_changes() -> None:
    (value,) = events_at(TAPE, numbers(0, 1)).values

    assert json.loads(value) == json.loads(FIRST_OF_SEED_7)


def test_every_made_event_is_valid_of_about_200_bytes_and_keyed_by_its_account() -> None:
    values, keys = events_at(TAPE, numbers(0, 3_000))

    events = [judge(value) for value in values]
    assert all(isinstance(event, Event) for event in events)
    assert [event.account_id.encode() for event in events if isinstance(event, Event)] == keys
    assert 190 <= sum(map(len, values)) / len(values) <= 215


def test_ids_are_distinct_and_look_like_random_uuids() -> None:
    ids = [event.transaction_id for event in made(TAPE, 0, 20_000)]

    assert len(set(ids)) == len(ids)
    assert all(UUID(each).version == 4 and str(UUID(each)) == each for each in ids[:500])


@pytest.mark.parametrize(
    "other",
    [
        Tape(8, TAPE.start, TAPE.gap, TAPE.late),
        Tape(7, TAPE.start + timedelta(days=1), TAPE.gap, TAPE.late),
        Tape(7, TAPE.start, TAPE.gap * 2, TAPE.late),
        Tape(7, TAPE.start, TAPE.gap, 0.5),
    ],
    ids=["seed", "start", "gap", "late"],
)
def test_tapes_that_differ_in_anything_share_no_id(other: Tape) -> None:
    ids = {event.transaction_id for event in made(TAPE, 0, 5_000)}

    assert ids.isdisjoint(event.transaction_id for event in made(other, 0, 5_000))


def test_event_times_go_along_the_day_and_the_late_ones_lie_up_to_26_hours_back() -> None:
    events = made(TAPE, 0, 20_000)
    start_us, gap_us = TAPE.start_us, TAPE.gap_us
    behind = [start_us + number * gap_us - event.event_time_us for number, event in enumerate(events)]
    late = [delay for delay in behind if delay > 61_000_000]

    assert all(0 <= delay <= LATE_BY_AT_MOST // timedelta(microseconds=1) for delay in behind)
    assert 0.006 < len(late) / len(events) < 0.014
    assert any(event.event_time_us < start_us for event in events), "some late ones belong to the day before"


def test_merchants_and_accounts_follow_zipf_with_one_of_each_far_ahead() -> None:
    events = made(TAPE, 0, 20_000)
    merchants = Counter(event.merchant_id for event in events)

    (first, most), (_, second) = merchants.most_common(2)
    assert first == "shop-00001"
    assert 1.8 < most / second < 2.6  # 2 ** 1.1 is 2.14
    assert len(merchants) > 2_000
    assert len({event.account_id for event in events}) > 5_000


def test_kinds_and_currencies_vary_and_refunds_are_below_zero() -> None:
    events = made(TAPE, 0, 5_000)

    assert {event.kind for event in events} == {"purchase", "refund", "transfer"}
    assert len({event.currency for event in events}) == 5
    assert all((event.amount_cents < 0) == (event.kind == "refund") and event.amount_cents for event in events)


def test_a_tape_outside_the_years_of_events_is_refused_with_a_way_out() -> None:
    with pytest.raises(BadRequest, match="--day"):
        Tape(1, datetime(1999, 1, 1, tzinfo=UTC), timedelta(seconds=1))


FIRST_OF_SEED_7 = (
    '{"transaction_id":"11139151-6f82-402a-b004-27b505150efb","event_time":"2026-03-01T00:00:00.000000Z"'
    ',"account_id":"acct-000001","merchant_id":"shop-00005","amount_cents":6230,"currency":"EUR","kind":"purchase"}'
)
