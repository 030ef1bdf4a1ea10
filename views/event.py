"""The event and its rules, as data.

`views.parse` turns these rules into the one Spark expression that both layers run; `serving.audit` reads a log by the
same paragraph of the documentation with code of its own. Nothing here knows how an event is parsed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum

MAX_EVENT_BYTES = 1 << 20
"""A longer value is quarantined unread, so that one delivery can never exhaust an executor."""

MAX_NESTING = 64
"""Objects and arrays inside one another, the event itself included."""

MAX_NUMBER_DIGITS = 1_000
"""A number with more digits, its fraction and exponent included, is not read; RFC 8259 leaves such limits to the reader."""

MAX_NAME_UNITS = 50_000
"""UTF-16 units in the name of a member, as the reader counts them; a longer one is not read."""

SCHEMA_VERSIONS = (1,)


class FieldKind(StrEnum):
    TEXT = "text"
    """1 to `longest` Unicode code points, none of them U+0000."""
    INSTANT = "instant"
    """RFC 3339 with an offset, `T` and `Z` in either case, at most 6 fraction digits, no leap second, years 2000 to 2099 in UTC."""
    INTEGER = "integer"
    """An integer literal between `least` and `greatest`; `-0` is one, `1.0` and `1e3` are not."""
    CODE = "code"
    """Text that matches `pattern` as a whole."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: FieldKind
    longest: int = 64
    least: int = 0
    greatest: int = 0
    pattern: str = ""


EVENT_FIELDS = (
    Field("transaction_id", FieldKind.TEXT),
    Field("event_time", FieldKind.INSTANT),
    Field("account_id", FieldKind.TEXT),
    Field("merchant_id", FieldKind.TEXT),
    Field("amount_cents", FieldKind.INTEGER, least=-(10**12), greatest=10**12),
    Field("currency", FieldKind.CODE, pattern="[A-Z]{3}"),
    Field("kind", FieldKind.CODE, pattern="purchase|refund|transfer"),
)


class Reason(StrEnum):
    """Why a delivery cannot be an event. The first that applies, in this order, is the one recorded."""

    NO_VALUE = "no_value"
    """Null or empty."""
    TOO_LARGE = "too_large"
    NOT_UTF8 = "not_utf8"
    TOO_DEEP = "too_deep"
    """Brackets outside strings nest deeper than `MAX_NESTING`, read from the left; a backslash hides the character after it."""
    NOT_JSON = "not_json"
    """Not one strict RFC 8259 value; also one where an object has a name twice (the RFC leaves its meaning open) or a limit is passed."""
    NOT_AN_OBJECT = "not_an_object"
    BAD_TEXT = "bad_text"
    """U+0000 or half a surrogate pair, written as an escape anywhere in the text."""
    UNKNOWN_SCHEMA = "unknown_schema"
    """`schema` is there and is not an integer literal that names a known version."""
    BAD_TRANSACTION_ID = "bad_transaction_id"
    BAD_EVENT_TIME = "bad_event_time"
    BAD_ACCOUNT_ID = "bad_account_id"
    BAD_MERCHANT_ID = "bad_merchant_id"
    BAD_AMOUNT_CENTS = "bad_amount_cents"
    BAD_CURRENCY = "bad_currency"
    BAD_KIND = "bad_kind"


def field_reason(field: Field) -> Reason:
    return Reason(f"bad_{field.name}")


def rules_fingerprint() -> str:
    """Names the event rules: equal exactly when every delivery is judged alike."""
    rules = {
        "format": 1,
        "fields": [asdict(field) for field in EVENT_FIELDS],
        "reasons": [str(reason) for reason in Reason],
        "max_event_bytes": MAX_EVENT_BYTES,
        "max_nesting": MAX_NESTING,
        "max_number_digits": MAX_NUMBER_DIGITS,
        "max_name_units": MAX_NAME_UNITS,
        "schema_versions": list(SCHEMA_VERSIONS),
    }
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:12]


RULES_FINGERPRINT = rules_fingerprint()
