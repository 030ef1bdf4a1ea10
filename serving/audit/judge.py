"""What one delivery is: an event, or the reason why it is none. The oracle's own reading of the event's definition.

Written for plainness with Python's JSON reader and explicit checks; it must stay independent of `views.parse`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeGuard

from xxhash import xxh64_intdigest

from views.event import MAX_EVENT_BYTES, MAX_NAME_UNITS, MAX_NESTING, MAX_NUMBER_DIGITS, SCHEMA_VERSIONS, Reason

_ID_SEED = 42
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RFC_3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_CURRENCY = re.compile("[A-Z]{3}")
_KINDS = ("purchase", "refund", "transfer")
_LARGEST_AMOUNT = 10**12
_LONGEST_TEXT = 64


class Event(NamedTuple):
    transaction_id: str
    event_time_us: int
    """Microseconds since 1970, UTC."""
    account_id: str
    merchant_id: str
    amount_cents: int
    currency: str
    kind: str
    id_hash: int


class _Unreadable(Exception):
    """Not a strict JSON text."""


class _Fraction:
    """A number that is written with a fraction or an exponent: never an integer literal, whatever its value."""


_FRACTION = _Fraction()


def judge(value: bytes | None) -> Event | Reason:
    """The event that these bytes are, or the first reason, in the order of `Reason`, why they are none."""
    if not value:
        return Reason.NO_VALUE
    if len(value) > MAX_EVENT_BYTES:
        return Reason.TOO_LARGE
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return Reason.NOT_UTF8
    if text.count("[") + text.count("{") > MAX_NESTING and _depth(text) > MAX_NESTING:
        return Reason.TOO_DEEP
    try:
        parsed = _READER.decode(text)
    except (_Unreadable, ValueError):
        return Reason.NOT_JSON
    if not isinstance(parsed, dict):
        return Reason.NOT_AN_OBJECT
    if "\\u" in text and not _clean(parsed):
        return Reason.BAD_TEXT
    return _judge_fields(parsed)


def _judge_fields(fields: dict[str, Any]) -> Event | Reason:
    if not _is_integer(schema := fields.get("schema", 1)) or schema not in SCHEMA_VERSIONS:
        return Reason.UNKNOWN_SCHEMA
    if not _is_text(transaction_id := fields.get("transaction_id")):
        return Reason.BAD_TRANSACTION_ID
    if (event_time_us := _instant_us(fields.get("event_time"))) is None:
        return Reason.BAD_EVENT_TIME
    if not _is_text(account_id := fields.get("account_id")):
        return Reason.BAD_ACCOUNT_ID
    if not _is_text(merchant_id := fields.get("merchant_id")):
        return Reason.BAD_MERCHANT_ID
    if not _is_integer(amount := fields.get("amount_cents")) or abs(amount) > _LARGEST_AMOUNT:
        return Reason.BAD_AMOUNT_CENTS
    if not isinstance(currency := fields.get("currency"), str) or not _CURRENCY.fullmatch(currency):
        return Reason.BAD_CURRENCY
    if not isinstance(kind := fields.get("kind"), str) or kind not in _KINDS:
        return Reason.BAD_KIND
    return Event(transaction_id, event_time_us, account_id, merchant_id, amount, currency, kind, _id_hash(transaction_id))


def _id_hash(transaction_id: str) -> int:
    """XXH64 of the id's UTF-8 bytes, seed 42, as a signed 64-bit integer."""
    unsigned = xxh64_intdigest(transaction_id.encode(), _ID_SEED)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def _is_integer(value: Any) -> TypeGuard[int]:
    return type(value) is int


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 1 <= len(value) <= _LONGEST_TEXT


def _instant_us(value: Any) -> int | None:
    """Microseconds since 1970 of an RFC 3339 instant in the years 2000 to 2099 UTC."""
    match = _RFC_3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    *date_and_time, fraction, sign, hours, minutes = match.groups()
    if sign and (int(hours) > 23 or int(minutes) > 59):
        return None
    ahead = timedelta(hours=int(hours), minutes=int(minutes)) if sign else timedelta()
    try:
        local = datetime(*map(int, date_and_time), int((fraction or "0").ljust(6, "0")), tzinfo=UTC)  # type: ignore[misc, arg-type]
        instant = local + ahead if sign == "-" else local - ahead
    except (ValueError, OverflowError):
        return None
    return (instant - _EPOCH) // _MICROSECOND if 2000 <= instant.year <= 2099 else None


def _depth(text: str) -> int:
    """How deep brackets nest outside strings, read from the left; a backslash hides the character after it."""
    depth = deepest = 0
    in_string = hidden = False
    for character in text:
        if hidden or character == "\\":
            hidden = not hidden
        elif character == '"':
            in_string = not in_string
        elif not in_string and character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif not in_string and character in "]}":
            depth -= 1
    return deepest


def _clean(value: Any) -> bool:
    """No string in it, name or value, holds U+0000 or half a surrogate pair."""
    if isinstance(value, str):
        return not any(character == "\x00" or "\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        return all(_clean(name) and _clean(member) for name, member in value.items())
    return not isinstance(value, list) or all(map(_clean, value))


def _members(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise _Unreadable(f"{name!r} twice")
        if len(name) > MAX_NAME_UNITS // 2 and len(name.encode("utf-16-le", "surrogatepass")) // 2 > MAX_NAME_UNITS:
            raise _Unreadable("a name too long")
        members[name] = value
    return members


def _refuse_constant(name: str) -> Any:
    raise _Unreadable(name)


def _fraction(literal: str) -> _Fraction:
    if len(literal) > MAX_NUMBER_DIGITS and sum(character in "0123456789" for character in literal) > MAX_NUMBER_DIGITS:
        raise _Unreadable("a number too long")
    return _FRACTION


def _integer(literal: str) -> int | _Fraction:
    # Python refuses to convert very long literals; as a number out of every range it needs no value.
    return int(literal) if len(literal) <= 40 else _fraction(literal)


_READER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_fraction)
