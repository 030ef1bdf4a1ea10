"""The event rules once more, in plain Python and without a line shared with `views`: what the tests compare with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import xxhash

TEXT_FIELDS = ("transaction_id", "account_id", "merchant_id")


class _NotJson(Exception):
    pass


class _Integer(str):
    """An integer literal as written."""


class _Fraction(str):
    """Any other number literal as written."""


class _Object(dict):
    pass


def judge(value: bytes | None) -> str | dict[str, object]:
    """The reason why `value` is no event, or its fields."""
    if not value:
        return "no_value"
    if len(value) > 1_048_576:
        return "too_large"
    try:
        text = value.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return "not_utf8"
    if _deepest(text) > 64:
        return "too_deep"
    try:
        found = json.loads(
            text, object_pairs_hook=_object, parse_int=_number(_Integer), parse_float=_number(_Fraction), parse_constant=_refuse
        )
    except (_NotJson, ValueError):
        return "not_json"
    if not isinstance(found, _Object):
        return "not_an_object"
    if any("\0" in string or any(0xD800 <= ord(c) <= 0xDFFF for c in string) for string in _strings(found)):
        return "bad_text"
    return _judge_fields(found)


def _judge_fields(found: _Object) -> str | dict[str, object]:
    schema = found.get("schema", _Integer("1"))
    if not isinstance(schema, _Integer) or int(schema) != 1:
        return "unknown_schema"
    fields: dict[str, object] = {}
    for name in ("transaction_id", "event_time", "account_id", "merchant_id", "amount_cents", "currency", "kind"):
        judged = _judge_field(name, found.get(name))
        if judged is None:
            return f"bad_{name}"
        fields[name] = judged
    return fields


def _judge_field(name: str, given: object) -> object | None:
    if name == "amount_cents":
        return int(given) if isinstance(given, _Integer) and len(given) < 20 and abs(int(given)) <= 10**12 else None
    if not isinstance(given, str) or isinstance(given, _Integer | _Fraction):
        return None
    if name == "event_time":
        return instant(given)
    if name == "currency":
        return given if len(given) == 3 and all("A" <= letter <= "Z" for letter in given) else None
    if name == "kind":
        return given if given in ("purchase", "refund", "transfer") else None
    return given if 1 <= len(given) <= 64 else None


def instant(text: str) -> datetime | None:
    shape = "".join("9" if "0" <= c <= "9" else c for c in text)
    match = re.fullmatch(r"9999-99-99[Tt]99:99:99(\.9{1,6})?([Zz]|[+-]99:99)", shape)
    if not match:
        return None
    zone_text = text[match.start(2) :]
    fraction = (match.group(1) or ".0") and text[19 : match.start(2)].lstrip(".").ljust(6, "0")
    offset = timedelta(0)
    if zone_text not in "Zz":
        hours, minutes = int(zone_text[1:3]), int(zone_text[4:6])
        if hours > 23 or minutes > 59:
            return None
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if zone_text[0] == "-" else 1)
    parts = [int(text[start : start + size]) for start, size in ((0, 4), (5, 2), (8, 2), (11, 2), (14, 2), (17, 2))]
    try:
        moment = datetime(*parts, microsecond=int(fraction), tzinfo=timezone(offset)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if 2000 <= moment.year <= 2099 else None


def signed_hash(content: bytes, seed: int = 42) -> int:
    unsigned = xxhash.xxh64_intdigest(content, seed)
    return unsigned - (1 << 64) if unsigned >> 63 else unsigned


def id_hashes(transaction_id: str) -> tuple[int, int]:
    content = transaction_id.encode()
    return signed_hash(content), signed_hash(content, xxhash.xxh64_intdigest(b"seam", 42))


def _deepest(text: str) -> int:
    depth = deepest = 0
    in_string = hidden = False
    for character in text:
        if hidden:
            hidden = False
        elif character == "\\":
            hidden = True
        elif character == '"':
            in_string = not in_string
        elif not in_string and character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif not in_string and character in "]}":
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, object]]) -> _Object:
    found = _Object(pairs)
    if len(found) != len(pairs) or any(len(name.encode("utf-16-le", "surrogatepass")) > 100_000 for name in found):
        raise _NotJson
    return found


def _number(kind: type[str]):
    def keep(literal: str) -> str:
        if sum(character.isdigit() for character in literal) > 1000:
            raise _NotJson
        return kind(literal)

    return keep


def _refuse(name: str) -> None:
    raise _NotJson(name)


def _strings(found: object) -> Iterator[str]:
    if isinstance(found, dict):
        for name, inner in found.items():
            yield name
            yield from _strings(inner)
    elif isinstance(found, list):
        for inner in found:
            yield from _strings(inner)
    elif isinstance(found, str) and not isinstance(found, _Integer | _Fraction):
        yield found
