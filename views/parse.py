"""The strict parse: one delivery's bytes to an event's fields or to the reason why they are none.

Everything is one Spark expression without Python in it, so both layers and every executor judge alike. Spark's own
JSON readers are more lenient than RFC 8259; each step below closes one of their gaps. Nothing here may throw for any
bytes, as an exception would stop the stream.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from views.event import EVENT_FIELDS, MAX_EVENT_BYTES, MAX_NESTING, SCHEMA_VERSIONS, Field, FieldKind, Reason, field_reason

MASKED_CHARACTERS = 120

_FIRST_INSTANT_US = 946_684_800_000_000
"""2000-01-01T00:00:00Z …"""
_END_INSTANT_US = 4_102_444_800_000_000
"""… to 2100-01-01T00:00:00Z, exclusive."""
_RFC_3339 = (
    r"\A[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\z"
)
_SURROGATE_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_NUL_OR_SURROGATE = r"\\u(?:0000|[dD][89a-fA-F])"


def parse(deliveries: DataFrame) -> DataFrame:
    """`deliveries` (with `value`) plus `value_hash`, `reason` (null for an event), `masked` and one column per event field."""
    carried = deliveries.columns
    staged = deliveries.select(*carried, _value_hash().alias("value_hash"), _early_reason().alias("early"))
    staged = staged.select("*", F.when(F.col("early").isNull(), _parsed()).alias("parsed"))
    staged = staged.select("*", *(_raw(field).alias(f"raw_{field.name}") for field in EVENT_FIELDS))
    staged = staged.select("*", *(_checked(field).alias(field.name) for field in EVENT_FIELDS))
    staged = staged.select("*", _reason().alias("reason"))
    return staged.select(*carried, "value_hash", "reason", _masked().alias("masked"), *(field.name for field in EVENT_FIELDS))


def _value_hash() -> Column:
    return F.when(F.col("value").isNull(), F.lit(0).cast("bigint")).otherwise(F.xxhash64("value"))


def _text() -> Column:
    return F.col("value").cast("string")


def _early_reason() -> Column:
    """What is wrong before anything is parsed: these guards keep the parser's work and stack bounded."""
    return (
        F.when(F.length("value").isNull() | (F.length("value") == 0), str(Reason.NO_VALUE))
        .when(F.length("value") > MAX_EVENT_BYTES, str(Reason.TOO_LARGE))
        .when(~F.is_valid_utf8(_text()), str(Reason.NOT_UTF8))
        .when((_opening_brackets() > MAX_NESTING) & (_depth() > MAX_NESTING), str(Reason.TOO_DEEP))
    )


def _opening_brackets() -> Column:
    without = F.replace(F.replace(_text(), F.lit("["), F.lit("")), F.lit("{"), F.lit(""))
    return F.octet_length(_text()) - F.octet_length(without)


def _depth() -> Column:
    """How deep brackets nest outside strings, read from the left; a backslash hides the character after it."""
    unescaped = F.regexp_replace(_text(), r"(?s)\\.", "")
    outside_strings = F.regexp_replace(unescaped, '"[^"]*(?:"|\\z)', "")
    brackets = F.regexp_replace(outside_strings, r"[^\[\]{}]", "")
    start = F.struct(F.lit(0).alias("now"), F.lit(0).alias("most"))

    def step(depth: Column, bracket: Column) -> Column:
        now = depth["now"] + F.when(bracket.isin("[", "{"), 1).when(bracket.isin("]", "}"), -1).otherwise(0)
        return F.struct(now.alias("now"), F.greatest(depth["most"], now).alias("most"))

    return F.aggregate(F.split(brackets, ""), start, step, lambda depth: depth["most"])


def _parsed() -> Column:
    """The text as element 0 of an array that a sentinel closes; null unless it is JSON without duplicate names.

    The parser stops at the end of the first value, so text after it would go unseen. The sentinel is a digest of the
    text, which the text cannot contain: where it is element 1, the text is exactly one value.
    """
    return F.try_parse_json(F.concat(F.lit("["), _text(), F.lit(',"'), _sentinel(), F.lit('"]')))


def _sentinel() -> Column:
    return F.sha2("value", 256)


def _raw(field: Field) -> Column:
    """The field where it has the right JSON type, else null.

    A variant casts only a string to binary, whereas its cast to string renders everything; and only an integer
    literal within 64 bits has the variant type BIGINT.
    """
    path = f"$[0].{field.name}"
    if field.kind is FieldKind.INTEGER:
        return F.when(_type_of(path) == "BIGINT", F.try_variant_get("parsed", path, "bigint"))
    return F.try_variant_get("parsed", path, "binary").cast("string")


def _type_of(path: str) -> Column:
    return F.schema_of_variant(F.try_variant_get("parsed", path, "variant"))


def _checked(field: Field) -> Column:
    raw = F.col(f"raw_{field.name}")
    if field.kind is FieldKind.TEXT:
        return F.when(F.length(raw).between(1, field.longest), raw)
    if field.kind is FieldKind.INTEGER:
        return F.when(raw.between(field.least, field.greatest), raw)
    if field.kind is FieldKind.CODE:
        return F.when(raw.rlike(rf"\A(?:{field.pattern})\z"), raw)
    return F.when(raw.rlike(_RFC_3339), _instant(raw))


def _instant(text: Column) -> Column:
    """The instant of an RFC 3339 text in range. Spark knows offsets up to 18 h only, so the offset is taken off here."""
    upper = F.upper(text)
    zulu = upper.endswith("Z")
    local = F.when(zulu, upper).otherwise(F.concat(F.substring(upper, 1, F.length(upper) - 6), F.lit("Z")))
    hours = F.substring(upper, -5, 2).try_cast("bigint")
    minutes = F.substring(upper, -2, 2).try_cast("bigint")
    sign = F.when(F.substring(upper, -6, 1) == "-", -1).otherwise(1)
    behind_us = F.when(zulu, F.lit(0).cast("bigint")).otherwise(sign * (hours * 60 + minutes) * 60_000_000)
    instant_us = F.unix_micros(local.try_cast("timestamp")) - behind_us
    return F.when((instant_us >= _FIRST_INSTANT_US) & (instant_us < _END_INSTANT_US), F.timestamp_micros(instant_us))


def _reason() -> Column:
    one_value = F.try_variant_get("parsed", "$[1]", "string") == _sentinel()
    reason = (
        F.when(F.col("early").isNotNull(), F.col("early"))
        .when(~F.coalesce(one_value, F.lit(False)), str(Reason.NOT_JSON))
        .when(~_type_of("$[0]").startswith("OBJECT<"), str(Reason.NOT_AN_OBJECT))
        .when(_text().contains("\\u") & _has_bad_escape(), str(Reason.BAD_TEXT))
        .when(~_known_schema(), str(Reason.UNKNOWN_SCHEMA))
    )
    for field in EVENT_FIELDS:
        reason = reason.when(F.col(field.name).isNull(), str(field_reason(field)))
    return reason


def _has_bad_escape() -> Column:
    """Whether valid JSON writes U+0000 or half a surrogate pair: Spark would turn these into a NUL and a question mark."""
    escapes = F.replace(_text(), F.lit("\\\\"), F.lit("__"))
    return F.regexp_replace(escapes, _SURROGATE_PAIR, "_").rlike(_NUL_OR_SURROGATE)


def _known_schema() -> Column:
    given = F.try_variant_get("parsed", "$[0].schema", "variant")
    version = F.when(F.schema_of_variant(given) == "BIGINT", F.try_variant_get("parsed", "$[0].schema", "bigint"))
    return F.when(given.isNull(), True).otherwise(F.coalesce(version.isin(*SCHEMA_VERSIONS), F.lit(False)))


def _masked() -> Column:
    """The first characters of a quarantined value with its structure and nothing of its content, in printable ASCII.

    A letter becomes `x`, a digit `#`, any other character outside ASCII and every control character a dot.
    """
    text = F.substring(F.make_valid_utf8(F.substring("value", 1, 4 * MASKED_CHARACTERS).cast("string")), 1, MASKED_CHARACTERS)
    shape = F.regexp_replace(F.regexp_replace(text, r"\p{N}", "#"), r"[\p{L}\p{M}]", "x")
    return F.when(F.col("reason").isNotNull(), F.coalesce(F.regexp_replace(shape, r"[^\x20-\x7e]", "."), F.lit("")))
