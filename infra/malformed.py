"""Deliveries that cannot be events, each broken in one way, made of a good one. The list grows when the wild shows another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

VERY_LARGE_BYTES = 5_000_000

Break = Callable[[bytes], bytes | None]


def _set(field: str, literal: str) -> Break:
    """The event with another JSON literal for one field."""
    pattern = re.compile(rb'("%s":)("[^"]*"|[^,}]*)' % field.encode())
    return lambda value: pattern.sub(lambda match: match[1] + literal.encode(), value, count=1)


def _without(field: str) -> Break:
    pattern = re.compile(rb'"%s":("[^"]*"|[^,}]*),?' % field.encode())
    return lambda value: pattern.sub(b"", value, count=1).replace(b",}", b"}")


def _add(member: str) -> Break:
    return lambda value: value[:-1] + b"," + member.encode() + b"}"


MALFORMED: Mapping[str, Break] = {
    "null value": lambda value: None,
    "empty value": lambda value: b"",
    "cut off": lambda value: value[: len(value) // 2],
    "text, not JSON": lambda value: b"hello",
    "text after the object": lambda value: value + b" and more",
    "two objects": lambda value: value + value,
    "single quotes": lambda value: value.replace(b'"', b"'"),
    "trailing comma": lambda value: value[:-1] + b",}",
    "a name twice": _add('"kind":"refund"'),
    "a raw tab in a string": lambda value: value.replace(b"shop-", b"shop\t"),
    "bad UTF-8": lambda value: value.replace(b"shop-", b"shop\xff"),
    "overlong UTF-8": lambda value: value.replace(b"shop-", b"shop\xc0\xaf"),
    "an array": lambda value: b"[" + value + b"]",
    "a number": lambda value: b"42",
    "null": lambda value: b"null",
    "deep nesting": _add('"extra":' + "[" * 200 + "]" * 200),
    "unclosed nesting": lambda value: b'{"extra":' + b"[" * 5000,
    "lone surrogate": lambda value: value.replace(b"shop-", b"shop\\ud800"),
    "U+0000": lambda value: value.replace(b"shop-", b"shop\\u0000"),
    "U+0000 in a field nobody reads": _add('"extra":"\\u0000"'),
    "unknown schema": _add('"schema":2'),
    "schema as text": _add('"schema":"1"'),
    "no id": _without("transaction_id"),
    "empty id": _set("transaction_id", '""'),
    "a number as id": _set("transaction_id", "17"),
    "over-long id": _set("transaction_id", '"' + "x" * 65 + '"'),
    "no time": _without("event_time"),
    "time without an offset": _set("event_time", '"2026-03-01T12:00:00"'),
    "time that is none": _set("event_time", '"2026-02-30T12:00:00Z"'),
    "time with nine fraction digits": _set("event_time", '"2026-03-01T12:00:00.123456789Z"'),
    "time far off": _set("event_time", '"1999-12-31T23:59:59Z"'),
    "time as a number": _set("event_time", "1772366400"),
    "no account": _without("account_id"),
    "over-long account": _set("account_id", '"' + "a" * 65 + '"'),
    "null merchant": _set("merchant_id", "null"),
    "over-long merchant": _set("merchant_id", '"' + "\u00e9" * 65 + '"'),
    "no amount": _without("amount_cents"),
    "amount as text": _set("amount_cents", '"100"'),
    "amount with a fraction": _set("amount_cents", "1.0"),
    "amount with an exponent": _set("amount_cents", "1e3"),
    "amount 1e400": _set("amount_cents", "1e400"),
    "amount NaN": _set("amount_cents", "NaN"),
    "amount of 20 digits": _set("amount_cents", "12345678901234567890"),
    "amount beyond the range": _set("amount_cents", "1000000000001"),
    "amount true": _set("amount_cents", "true"),
    "amount with a leading zero": _set("amount_cents", "0100"),
    "currency in small letters": _set("currency", '"eur"'),
    "long currency": _set("currency", '"EURO"'),
    "unknown kind": _set("kind", '"gift"'),
    "no kind": _without("kind"),
    "names in capitals": lambda value: value.replace(b'"kind"', b'"KIND"'),
}


def very_large(value: bytes) -> bytes:
    """Valid JSON of 5 MB: refused for its size alone."""
    return value[:-1] + b',"extra":"' + b"x" * (VERY_LARGE_BYTES - len(value) - 12) + b'"}'
