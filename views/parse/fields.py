"""Reading the fields: `from_json` over every text, and each field's own rule."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from views.event import EVENT_FIELDS, Field, FieldKind

_TYPES = ",".join(f"{field.name}:{'bigint' if field.kind is FieldKind.INTEGER else 'string'}" for field in EVENT_FIELDS)
_STRICTER = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}

_FIRST_INSTANT_US = 946_684_800_000_000
"""2000-01-01T00:00:00Z …"""
_END_INSTANT_US = 4_102_444_800_000_000
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


def checked(field: Field) -> Column:
    """The field as its rule wants it, else null."""
    value = F.col(f"given_{field.name}")
    match field.kind:
        case FieldKind.TEXT:
            return in_length(field, value)
        case FieldKind.INTEGER:
            return F.when(value.between(field.least, field.greatest), value)
        case FieldKind.INSTANT:
            return F.when(value.rlike(_RFC_3339), _instant(value))
        case FieldKind.CODE:
            return F.when(_matches(value, field.pattern), value)


def in_length(field: Field, value: Column) -> Column:
    """Spark's `length` of a string counts code points."""
    return F.when(F.length(value).between(1, field.longest), value)


def _matches(value: Column, pattern: str) -> Column:
    words = pattern.split("|")
    return value.isin(*words) if all(word.isalpha() for word in words) else value.rlike(rf"\A(?:{pattern})\z")


def _instant(text: Column) -> Column:
    """The instant of an RFC 3339 text in range. Spark knows offsets up to 18 h only, so the offset is taken off here."""
    upper = F.upper(text)
    instant_us = F.when(upper.endswith("Z"), F.unix_micros(upper.try_cast("timestamp"))).otherwise(_offset_instant_us(upper))
    return F.when((instant_us >= _FIRST_INSTANT_US) & (instant_us < _END_INSTANT_US), F.timestamp_micros(instant_us))


def _offset_instant_us(upper: Column) -> Column:
    local = F.concat(F.substring(upper, 1, F.length(upper) - 6), F.lit("Z"))
    hours = F.substring(upper, -5, 2).try_cast("bigint")
    minutes = F.substring(upper, -2, 2).try_cast("bigint")
    sign = F.when(F.substring(upper, -6, 1) == "-", -1).otherwise(1)
    return F.unix_micros(local.try_cast("timestamp")) - sign * (hours * 60 + minutes) * 60_000_000
