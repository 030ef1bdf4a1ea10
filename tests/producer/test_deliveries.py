"""What is sent: each event first once, re-deliveries near, far and of earlier runs, and malformed ones."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from infra.deliveries import NEAR, Mix, Planned, Role, planned_deliveries, replayed_lines
from infra.generator import Tape
from infra.malformed import MALFORMED, very_large
from serving.audit.judge import Event, judge
from serving.errors import BadRequest
from views.event import MAX_EVENT_BYTES, Reason

TAPE = Tape(seed=3, start=datetime(2026, 3, 1, tzinfo=UTC), gap=timedelta(seconds=4))
EVENTS = 12_000

REASONS = {
    "null value": Reason.NO_VALUE,
    "empty value": Reason.NO_VALUE,
    "cut off": Reason.NOT_JSON,
    "text, not JSON": Reason.NOT_JSON,
    "text after the object": Reason.NOT_JSON,
    "two objects": Reason.NOT_JSON,
    "single quotes": Reason.NOT_JSON,
    "trailing comma": Reason.NOT_JSON,
    "a name twice": Reason.NOT_JSON,
    "a raw tab in a string": Reason.NOT_JSON,
    "bad UTF-8": Reason.NOT_UTF8,
    "overlong UTF-8": Reason.NOT_UTF8,
    "an array": Reason.NOT_AN_OBJECT,
    "a number": Reason.NOT_AN_OBJECT,
    "null": Reason.NOT_AN_OBJECT,
    "deep nesting": Reason.TOO_DEEP,
    "unclosed nesting": Reason.TOO_DEEP,
    "lone surrogate": Reason.BAD_TEXT,
    "U+0000": Reason.BAD_TEXT,
    "U+0000 in a field nobody reads": Reason.BAD_TEXT,
    "unknown schema": Reason.UNKNOWN_SCHEMA,
    "schema as text": Reason.UNKNOWN_SCHEMA,
    "no id": Reason.BAD_TRANSACTION_ID,
    "empty id": Reason.BAD_TRANSACTION_ID,
    "a number as id": Reason.BAD_TRANSACTION_ID,
    "over-long id": Reason.BAD_TRANSACTION_ID,
    "no time": Reason.BAD_EVENT_TIME,
    "time without an offset": Reason.BAD_EVENT_TIME,
    "time that is none": Reason.BAD_EVENT_TIME,
    "time with nine fraction digits": Reason.BAD_EVENT_TIME,
    "time far off": Reason.BAD_EVENT_TIME,
    "time as a number": Reason.BAD_EVENT_TIME,
    "no account": Reason.BAD_ACCOUNT_ID,
    "over-long account": Reason.BAD_ACCOUNT_ID,
    "null merchant": Reason.BAD_MERCHANT_ID,
    "over-long merchant": Reason.BAD_MERCHANT_ID,
    "no amount": Reason.BAD_AMOUNT_CENTS,
    "amount as text": Reason.BAD_AMOUNT_CENTS,
    "amount with a fraction": Reason.BAD_AMOUNT_CENTS,
    "amount with an exponent": Reason.BAD_AMOUNT_CENTS,
    "amount 1e400": Reason.BAD_AMOUNT_CENTS,
    "amount NaN": Reason.NOT_JSON,
    "amount of 20 digits": Reason.BAD_AMOUNT_CENTS,
    "amount beyond the range": Reason.BAD_AMOUNT_CENTS,
    "amount true": Reason.BAD_AMOUNT_CENTS,
    "amount with a leading zero": Reason.NOT_JSON,
    "currency in small letters": Reason.BAD_CURRENCY,
    "long currency": Reason.BAD_CURRENCY,
    "unknown kind": Reason.BAD_KIND,
    "no kind": Reason.BAD_KIND,
    "names in capitals": Reason.BAD_KIND,
}


def planned(mix: Mix, first: int = 0, until: int = EVENTS, earlier: list[tuple[bytes | None, bytes]] | None = None) -> list[Planned]:
    chunks = planned_deliveries(TAPE, mix, first, until, partitions=4, earlier=earlier or ())
    return [delivery for chunk in chunks for delivery in chunk.deliveries]


def test_each_event_is_sent_first_exactly_once_and_in_order() -> None:
    alone = [delivery.value for delivery in planned(Mix())]
    mixed = [delivery.value for delivery in planned(Mix(0.1, 0.01)) if delivery.role is Role.FIRST]

    assert mixed == alone and len(set(mixed)) == EVENTS


def test_the_same_tape_and_mix_send_the_same_and_a_later_start_continues_it() -> None:
    whole = planned(Mix(0.1, 0.01))

    assert planned(Mix(0.1, 0.01)) == whole
    assert planned(Mix(0.1, 0.01), 0, 5_000) + planned(Mix(0.1, 0.01), 5_000, EVENTS) == whole


def test_redeliveries_repeat_an_event_byte_for_byte_near_and_far_and_in_other_partitions() -> None:
    sent = planned(Mix(duplicates=0.1))
    numbers = {delivery.value: number for number, delivery in enumerate(d for d in sent if d.role is Role.FIRST)}
    distances: dict[Role, list[int]] = {Role.NEAR: [], Role.FAR: []}
    newest = -1
    for delivery in sent:
        if delivery.role is Role.FIRST:
            newest = numbers[delivery.value]
        else:
            distances[delivery.role].append(newest - numbers[delivery.value])

    assert 0.08 * EVENTS < sum(map(len, distances.values())) < 0.12 * EVENTS
    assert all(0 <= distance < NEAR for distance in distances[Role.NEAR])
    assert max(distances[Role.FAR]) > EVENTS / 2
    assert {delivery.partition for delivery in sent if delivery.role is Role.FAR} == {None, 0, 1, 2, 3}


def test_events_of_an_earlier_run_are_delivered_again_where_it_is_given() -> None:
    earlier = [(b"acct-1", b'{"n":%d}' % number) for number in range(50)]
    again = [delivery for delivery in planned(Mix(duplicates=0.05), earlier=earlier) if delivery.role is Role.EARLIER]

    assert len(again) > 100
    assert {(delivery.key, delivery.value) for delivery in again} == set(earlier)


@pytest.mark.parametrize("name", MALFORMED)
def test_each_malformed_delivery_is_refused_for_its_own_reason(name: str) -> None:
    good = planned(Mix(), 0, 1)[0].value
    assert good is not None and isinstance(judge(good), Event)

    assert judge(MALFORMED[name](good)) is REASONS[name]


def test_a_very_large_delivery_is_valid_but_for_its_size() -> None:
    good = planned(Mix(), 0, 1)[0].value
    assert good is not None

    assert len(very_large(good)) > 4 * MAX_EVENT_BYTES
    assert judge(very_large(good)) is Reason.TOO_LARGE


def test_malformed_deliveries_of_a_mix_are_all_refused_and_vary() -> None:
    broken = [delivery.value for delivery in planned(Mix(malformed=0.05)) if delivery.role is Role.MALFORMED]

    verdicts = {judge(value) for value in broken}
    assert 0.04 * EVENTS < len(broken) < 0.06 * EVENTS
    assert verdicts == set(Reason)


def test_a_replayed_line_is_sent_byte_for_byte_and_keyed_by_its_account() -> None:
    lines = b'{"account_id":"acct-9"}\n\nnot json\r\n[1]\n{"account_id":5}\nno line end'
    (chunk,) = replayed_lines(io.BytesIO(lines))

    assert (chunk.first, chunk.until) == (0, 6)
    assert [delivery.value for delivery in chunk.deliveries] == lines.split(b"\n")
    assert [delivery.key for delivery in chunk.deliveries] == [b"acct-9", None, None, None, None, None]


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(BadRequest, match="between 0 and 1"):
        Mix(duplicates=5)
