"""Reading the fields: `from_json` over every text, and each field's own rule."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from views.event import EVENT_FIELDS, Field, FieldKind

_TYPES = ",".join(f"{field.name}:{'bigint' if field.kind is FieldKind.INTEGER else 'string'}" for field in EVENT_FIELDS)
_STRICTER = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}

_FIRST_SECOND = 946_684_800
"""2000-01-01T00:00:00Z …"""
_END_SECOND = 4_102_444_800
"""… to 2100-01-01T00:00:00Z, exclusive."""
_RFC_3339 = (
    r"\A[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\z"
)


def read(text: Column) -> Column:
    """The values in `text`: one, if it is an event. The brackets show a second value; alone, the reader would skip it."""
    return F.from_json(F.concat(F.lit("["), text, F.lit("]")), f"array<struct<{_TYPES},schema:string>>", _STRICTER)


def given(values: Column) -> list[Column]:
    """How many values were read, and the first one's fields as `given_…`; a string field may have been another JSON type."""
    first = F.get(values, F.lit(0))
    names = [*(field.name for field in EVENT_FIELDS), "schema"]
    return [F.size(values).alias("values_read"), *(first[name].alias(f"given_{name}") for name in names)]


def instant_us(field: Field) -> Column:
    """Microseconds since 1970 of an instant as given; null unless it is one, whatever its year."""
    text = F.col(f"given_{field.name}")
    return F.when(text.rlike(_RFC_3339), _microseconds(text))


def checked(field: Field) -> Column:
    """The field as its rule wants it, else null; of an instant, `us_…` holds its `instant_us`."""
    value = F.col(f"given_{field.name}")
    match field.kind:
        case FieldKind.TEXT:
            return in_length(field, value)
        case FieldKind.INTEGER:
            return F.when(value.between(field.least, field.greatest), value)
        case FieldKind.INSTANT:
            us = F.col(f"us_{field.name}")
            return F.when((us >= _FIRST_SECOND * 1_000_000) & (us < _END_SECOND * 1_000_000), F.timestamp_micros(us))
        case FieldKind.CODE:
            return F.when(_matches(value, field.pattern), value)


def in_length(field: Field, value: Column) -> Column:
    """Spark's `length` of a string counts code points."""
    return F.when(F.length(value).between(1, field.longest), value)


def _matches(value: Column, pattern: str) -> Column:
    words = pattern.split("|")
    return value.isin(*words) if all(word.isalpha() for word in words) else value.rlike(rf"\A(?:{pattern})\z")


def _microseconds(text: Column) -> Column:
    """By arithmetic: Spark's own cast knows offsets up to 18 h only and follows the time zone of the session."""
    zulu = F.substring(text, -1, 1).isin("Z", "z")
    midnight = F.unix_date(F.substring(text, 1, 10).try_cast("date")).cast("bigint") * 86_400
    of_day = _two_digits(text, 12) * 3_600 + _two_digits(text, 15) * 60 + _two_digits(text, 18)
    sign = F.when(F.substring(text, -6, 1) == "-", -1).otherwise(1)
    ahead = F.when(zulu, 0).otherwise(sign * (_two_digits(text, -5) * 3_600 + _two_digits(text, -2) * 60))
    digits = F.length(text) - F.when(zulu, len("2026-03-01T12:00:00.Z")).otherwise(len("2026-03-01T12:00:00.+01:00"))
    fraction = F.rpad(F.substring(text, F.lit(21), digits), 6, "0").try_cast("int")
    return (midnight + of_day - ahead) * 1_000_000 + F.when(F.substring(text, 20, 1) == ".", fraction).otherwise(0)


def _two_digits(text: Column, at: int) -> Column:
    return F.substring(text, at, 2).try_cast("int")
