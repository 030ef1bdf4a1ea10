"""Page cursors: where the last row of a page stood. Opaque to users, checked when they come back."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence

from serving.errors import BadRequest
from views.view import View


def encode_cursor(view: View, key: Sequence[str], window_start: int | None) -> str:
    """The cursor after a row; `window_start` in seconds since 1970, None where windows are folded into one row."""
    where = json.dumps([view.fingerprint, *key, window_start], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(where.encode()).decode().rstrip("=")


def decode_cursor(view: View, cursor: str, *, total: bool) -> tuple[tuple[str, ...], int | None]:
    """Key and window of the row a page ended with; `BadRequest` for anything `encode_cursor` did not make for this question."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        where = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise _bad(cursor) from None
    if not isinstance(where, list) or len(where) != len(view.key) + 2 or where[0] != view.fingerprint:
        raise _bad(cursor)
    _, *key, window_start = where
    if not all(isinstance(value, str) and storable(value) for value in key):
        raise _bad(cursor)
    if total != (window_start is None) or not (window_start is None or _in_range(window_start)):
        raise _bad(cursor)
    return tuple(key), window_start


def storable(text: str) -> bool:
    """Whether the database can hold this text: no U+0000, no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def _in_range(seconds: object) -> bool:
    return type(seconds) is int and 0 <= seconds < 1 << 33


def _bad(cursor: str) -> BadRequest:
    return BadRequest(
        f"{cursor[:80]!r} is not a cursor of this question.", fix="Repeat the question without cursor, then follow `next`.", field="cursor"
    )
