"""From the text a person or a program typed to a `Query`: one set of rules for HTTP and the command line.

Whatever cannot be asked is a `BadRequest` that lists what can. Nothing here knows of HTTP or of the database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from serving.errors import BadRequest
from serving.store.records import ManifestId, Query
from views.event import EVENT_FIELDS, Field, FieldKind
from views.view import View

OPTIONS = ("from", "to", "total", "as_of", "limit", "cursor")
"""What may be asked of every view, beside its key fields."""

MOST_ROWS = 10_000
DEFAULT_ROWS = 1_000
_LONGEST_CURSOR = 2_000

_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_FIELDS = {field.name: field for field in EVENT_FIELDS}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def legal_parameters(view: View) -> tuple[str, ...]:
    return (*view.key, *OPTIONS)


def to_query(view: View, parameters: Iterable[tuple[str, str]], *, default_limit: int | None, most_rows: int | None) -> Query:
    """The question that these (name, text) pairs ask; each name at most once."""
    given: dict[str, str] = {}
    for name, text in parameters:
        if name not in view.key and name not in OPTIONS:
            raise BadRequest(f"{view.name} has no parameter {shown(name)}.", fix=f"Use any of: {', '.join(legal_parameters(view))}.")
        if name in given:
            raise BadRequest(f"{name} is given more than once.", fix="Give each parameter once.")
        given[name] = text
    start, end = _instant("from", given.get("from")), _instant("to", given.get("to"))
    if start is not None and end is not None and end < start:
        raise BadRequest("to lies before from.", fix="The range is half-open: from <= window_start < to.")
    return Query(
        key={name: _key_value(_FIELDS[name], given[name]) for name in view.key if name in given},
        start=start,
        end=end,
        total=_boolean("total", given.get("total", "false")),
        as_of=None if "as_of" not in given else ManifestId(_whole_number("as_of", given["as_of"], 0, 2**62)),
        limit=_limit(given.get("limit"), default_limit, most_rows),
        cursor=_cursor(given.get("cursor")),
    )


def shown(text: str) -> str:
    """Text from outside, short and on one line, for use in a message."""
    return ascii(text if len(text) <= 80 else text[:80] + "…")


def _key_value(field: Field, text: str) -> str:
    if field.kind is FieldKind.CODE:
        if not re.fullmatch(field.pattern, text):
            raise BadRequest(f"{field.name} is {shown(text)}: no event has that.", fix=f"It matches {field.pattern}.")
    elif not 1 <= len(text) <= field.longest or _NO_TEXT.search(text):
        raise BadRequest(
            f"{field.name} is {shown(text)}: no event has that.", fix=f"It has 1 to {field.longest} characters, none of them U+0000."
        )
    return text


def _instant(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is not None:
            return instant.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    hint = " In a URL a + is written %2B." if re.search(r" \d\d:?\d\d$", text) else ""
    raise BadRequest(
        f"{name} is {shown(text)}: not an instant with an offset.",
        fix=f"Write ISO 8601 as in 2026-03-01T12:00:00Z or 2026-03-01T13:00:00+01:00.{hint}",
    )


def _boolean(name: str, text: str) -> bool:
    if text not in _BOOLEANS:
        raise BadRequest(f"{name} is {shown(text)}.", fix="It is true or false.")
    return _BOOLEANS[text]


def _limit(text: str | None, default: int | None, most: int | None) -> int | None:
    return default if text is None else _whole_number("limit", text, 1, most if most is not None else 1_000_000)


def _whole_number(name: str, text: str, least: int, most: int) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None
    if number is None or not least <= number <= most:
        raise BadRequest(f"{name} is {shown(text)}.", fix=f"It is a whole number from {least} to {most}.")
    return number


def _cursor(text: str | None) -> str | None:
    if text is not None and (not 1 <= len(text) <= _LONGEST_CURSOR or not text.isascii() or not text.isprintable()):
        raise BadRequest("cursor is not one that an answer gave.", fix="Pass `next` of the page before, unchanged, or leave it out.")
    return text
