"""The oracle's own reading of an event, case by case."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from serving.audit.judge import Event, judge
from views.event import MAX_EVENT_BYTES, Reason

GOOD: dict[str, object] = {
    "transaction_id": "t-1",
    "event_time": "2026-03-01T12:00:00Z",
    "account_id": "a-1",
    "merchant_id": "m-1",
    "amount_cents": 100,
    "currency": "EUR",
    "kind": "purchase",
}


def value(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}, ensure_ascii=False).encode()


def literal(field: str, text: str) -> bytes:
    """The good event with `text` written for one field."""
    return value(**{field: "@"}).replace(b'"@"', text.encode())


def without(field: str) -> bytes:
    return json.dumps({name: given for name, given in GOOD.items() if name != field}).encode()


def judged(given: bytes) -> Event:
    event = judge(given)
    assert isinstance(event, Event), event
    return event


def test_an_event_is_read_with_all_its_fields() -> None:
    noon_us = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000

    assert judged(value())[:7] == ("t-1", noon_us, "a-1", "m-1", 100, "EUR", "purchase")


@pytest.mark.parametrize(
    ("transaction_id", "id_hash"),
    [("t-1", 4571988288769190662), ("é", 2065146811275570100), ("cb7655d3-1ef8-4312-b129-272446f442cf", -4448258389193030022)],
)
def test_the_id_hash_is_what_spark_answered_for_xxhash64(transaction_id: str, id_hash: int) -> None:
    assert judged(value(transaction_id=transaction_id)).id_hash == id_hash


@pytest.mark.parametrize(
    "given",
    [
        value(transaction_id="x" * 64),
        value(transaction_id="\U0001f600" * 64),
        value(account_id=" "),
        value(merchant_id='quotes " and \\ and \t'),
        literal("merchant_id", r'"\ud83d\ude00"'),
        literal("merchant_id", r'"\\ud800"'),
        literal("merchant_id", r'"\\u0000"'),
        literal("amount_cents", "-0"),
        literal("amount_cents", "1000000000000"),
        literal("amount_cents", "-1000000000000"),
        value(schema=1),
        value(extra={"a": [1.5, None, True, 1e300]}),
        value(extra="[" * 500),
        literal("extra", "[" * 63 + "]" * 63),
        literal("extra", "1e400"),
        literal("extra", "9" * 1000),
        b" \t\r\n" + value() + b" \t\r\n",
        value(kind="refund"),
        value(kind="transfer"),
        value(extra="x" * (MAX_EVENT_BYTES - len(value(extra="")))),
    ],
    ids=lambda given: repr(given[:20] + b".." + given[-90:]),
)
def test_these_are_events(given: bytes) -> None:
    assert isinstance(judge(given), Event)


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("2026-03-01T13:00:00+01:00", "2026-03-01T12:00:00Z"),
        ("2026-03-01t12:00:00z", "2026-03-01T12:00:00Z"),
        ("2026-03-01T12:00:00-00:00", "2026-03-01T12:00:00Z"),
        ("2026-03-02T11:59:00+23:59", "2026-03-01T12:00:00Z"),
        ("2026-02-28T12:01:00-23:59", "2026-03-01T12:00:00Z"),
        ("2026-03-01T12:00:00.5Z", "2026-03-01T12:00:00.500000Z"),
        ("2024-02-29T00:00:00Z", "2024-02-28T23:59:00-00:01"),
        ("2100-01-01T00:30:00+01:00", "2099-12-31T23:30:00Z"),
        ("1999-12-31T23:30:00-01:00", "2000-01-01T00:30:00Z"),
    ],
)
def test_an_instant_is_the_same_however_it_is_written(text: str, same_as: str) -> None:
    assert judged(value(event_time=text)).event_time_us == judged(value(event_time=same_as)).event_time_us


BAD_TIMES = (
    *("2026-03-01T12:00:00", "2026-03-01 12:00:00Z", "2026-03-01T12:00Z", "2026-03-01T12:00:60Z", "2026-03-01T24:00:00Z"),
    *("2026-02-29T12:00:00Z", "2026-00-01T12:00:00Z", "2026-03-32T12:00:00Z", "2026-3-1T12:00:00Z", "26-03-01T12:00:00Z"),
    *("2026-03-01T12:00:00.Z", "2026-03-01T12:00:00.1234567Z", "2026-03-01T12:00:00,5Z", "2026-03-01T12:00:00+0100"),
    *("2026-03-01T12:00:00+24:00", "2026-03-01T12:00:00+01:60", " 2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z\n", ""),
    *(
        "1999-12-31T23:59:59.999999Z",
        "2100-01-01T00:00:00Z",
        "2000-01-01T00:30:00+01:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
    ),
    *("0001-01-01T00:00:00+23:59", "٢٠٢٦-03-01T12:00:00Z"),
)


@pytest.mark.parametrize("text", BAD_TIMES)
def test_anything_else_is_no_instant(text: str) -> None:
    assert judge(value(event_time=text)) is Reason.BAD_EVENT_TIME


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, Reason.NO_VALUE),
        (b"", Reason.NO_VALUE),
        (value(extra="x" * MAX_EVENT_BYTES), Reason.TOO_LARGE),
        (b"\xff" * (MAX_EVENT_BYTES + 1), Reason.TOO_LARGE),
        (value().replace(b"m-1", b"m\xff"), Reason.NOT_UTF8),
        (value().replace(b"m-1", b"\xed\xa0\x80"), Reason.NOT_UTF8),
        (value().replace(b"m-1", b"\xc0\x80"), Reason.NOT_UTF8),
        (literal("extra", "[" * 64 + "]" * 64), Reason.TOO_DEEP),
        (b"[" * 100_000, Reason.TOO_DEEP),
        (b'{"a":' * 65, Reason.TOO_DEEP),
        (b" ", Reason.NOT_JSON),
        (b"\xef\xbb\xbf" + value(), Reason.NOT_JSON),
        (value()[:-1], Reason.NOT_JSON),
        (value() + b"x", Reason.NOT_JSON),
        (value() + b"{}", Reason.NOT_JSON),
        (value() + b",", Reason.NOT_JSON),
        (value()[:-1] + b",}", Reason.NOT_JSON),
        (value().replace(b'"', b"'"), Reason.NOT_JSON),
        (value()[:-1] + b',"kind":"refund"}', Reason.NOT_JSON),
        (value()[:-1] + b',"extra":{"a":1,"\\u0061":2}}', Reason.NOT_JSON),
        (literal("amount_cents", "NaN"), Reason.NOT_JSON),
        (literal("extra", "-Infinity"), Reason.NOT_JSON),
        (literal("amount_cents", "01"), Reason.NOT_JSON),
        (literal("amount_cents", "+1"), Reason.NOT_JSON),
        (literal("amount_cents", ".5"), Reason.NOT_JSON),
        (literal("merchant_id", '"a\tb"'), Reason.NOT_JSON),
        (literal("merchant_id", '"\\x41"'), Reason.NOT_JSON),
        (value().replace(b"m-1", b"\x00"), Reason.NOT_JSON),
        (b"// a comment\n" + value(), Reason.NOT_JSON),
        (b"null", Reason.NOT_AN_OBJECT),
        (b"[" + value() + b"]", Reason.NOT_AN_OBJECT),
        (b'"\\ud800"', Reason.NOT_AN_OBJECT),
        (literal("merchant_id", r'"\ud800"'), Reason.BAD_TEXT),
        (literal("merchant_id", r'"\udc00\ud800"'), Reason.BAD_TEXT),
        (literal("merchant_id", r'"\u0000"'), Reason.BAD_TEXT),
        (value()[:-1] + rb',"extra":[{"\u0000":1}]}', Reason.BAD_TEXT),
        (value(schema=2), Reason.UNKNOWN_SCHEMA),
        (value(schema="1"), Reason.UNKNOWN_SCHEMA),
        (value(schema=True), Reason.UNKNOWN_SCHEMA),
        (value(schema=None), Reason.UNKNOWN_SCHEMA),
        (literal("schema", "1.0"), Reason.UNKNOWN_SCHEMA),
        (value(schema=2, transaction_id=1), Reason.UNKNOWN_SCHEMA),
        (without("transaction_id"), Reason.BAD_TRANSACTION_ID),
        (value(transaction_id=""), Reason.BAD_TRANSACTION_ID),
        (value(transaction_id="é" * 65), Reason.BAD_TRANSACTION_ID),
        (value(transaction_id=5, event_time=5), Reason.BAD_TRANSACTION_ID),
        (without("event_time"), Reason.BAD_EVENT_TIME),
        (value(event_time=1_772_366_400), Reason.BAD_EVENT_TIME),
        (without("account_id"), Reason.BAD_ACCOUNT_ID),
        (value(account_id=None), Reason.BAD_ACCOUNT_ID),
        (value(account_id=["a"]), Reason.BAD_ACCOUNT_ID),
        (without("merchant_id"), Reason.BAD_MERCHANT_ID),
        (value(merchant_id="m" * 65), Reason.BAD_MERCHANT_ID),
        (without("amount_cents"), Reason.BAD_AMOUNT_CENTS),
        (value(amount_cents="100"), Reason.BAD_AMOUNT_CENTS),
        (value(amount_cents=True), Reason.BAD_AMOUNT_CENTS),
        (literal("amount_cents", "1.0"), Reason.BAD_AMOUNT_CENTS),
        (literal("amount_cents", "1e3"), Reason.BAD_AMOUNT_CENTS),
        (literal("amount_cents", "1e400"), Reason.BAD_AMOUNT_CENTS),
        (literal("amount_cents", "12345678901234567890"), Reason.BAD_AMOUNT_CENTS),
        (literal("amount_cents", "9" * 1000), Reason.BAD_AMOUNT_CENTS),
        (literal("amount_cents", "9" * 1001), Reason.NOT_JSON),
        (value(amount_cents=10**12 + 1), Reason.BAD_AMOUNT_CENTS),
        (value(amount_cents=-(10**12) - 1), Reason.BAD_AMOUNT_CENTS),
        (without("currency"), Reason.BAD_CURRENCY),
        (value(currency="eur"), Reason.BAD_CURRENCY),
        (value(currency="EUR\n"), Reason.BAD_CURRENCY),
        (value(currency="ÄUR"), Reason.BAD_CURRENCY),
        (without("kind"), Reason.BAD_KIND),
        (value(kind="purchases"), Reason.BAD_KIND),
        (value(kind="Purchase"), Reason.BAD_KIND),
        (value().replace(b'"kind"', b'"KIND"'), Reason.BAD_KIND),
    ],
    ids=lambda given: repr(given[:12] + b".." + given[-40:]) if isinstance(given, bytes) else str(given),
)
def test_what_cannot_be_an_event_gets_the_first_reason_that_applies(given: bytes | None, reason: Reason) -> None:
    assert judge(given) is reason


def test_every_reason_has_a_case() -> None:
    marks = test_what_cannot_be_an_event_gets_the_first_reason_that_applies.pytestmark  # type: ignore[attr-defined]

    assert {reason for _, reason in marks[0].args[1]} | {Reason.BAD_EVENT_TIME} == set(Reason)
