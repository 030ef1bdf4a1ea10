"""The strict reading of a text whose strictness is in doubt: what is not JSON, and why.

A variant refuses what RFC 8259 refuses, and names that come twice. It still stops at the end of the first value and
is silent on escapes that write no character; both are closed here.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from views.event import MAX_NESTING, SCHEMA_VERSIONS, Reason

_SURROGATE_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_NUL_OR_SURROGATE = r"\\u(?:0000|[dD][89a-fA-F])"


def parsed(text: Column) -> Column:
    """A variant whose `$[0]` is the value in `text`; null unless `text` is one strict JSON value, not nested too deep.

    A sentinel follows the text. It is a digest of the text, which the text cannot contain: where it is read as the
    second element, nothing but white space stands between the value and it.
    """
    sentinel = F.sha2(text.cast("binary"), 256)
    parsed = F.try_parse_json(F.concat(F.lit("["), text, F.lit(',"'), sentinel, F.lit('"]')))
    return F.when(~_too_deep(text) & (F.try_variant_get(parsed, "$[1]", "string") == sentinel), parsed)


def string(name: str) -> Column:
    """The field where it is a JSON string: a variant casts only that to binary, whereas its cast to string renders all."""
    return F.try_variant_get("strict", f"$[0].{name}", "binary").cast("string")


def reason(text: Column) -> Column:
    """Why `text` is no event, whatever its fields hold; null if that is not why."""
    return (
        F.when(_too_deep(text), str(Reason.TOO_DEEP))
        .when(F.col("strict").isNull(), str(Reason.NOT_JSON))
        .when(~_type_of("$[0]").startswith("OBJECT<"), str(Reason.NOT_AN_OBJECT))
        .when(_has_bad_escape(text), str(Reason.BAD_TEXT))
        .when(~_known_schema(), str(Reason.UNKNOWN_SCHEMA))
    )


def _type_of(path: str) -> Column:
    return F.schema_of_variant(F.try_variant_get("strict", path, "variant"))


def _known_schema() -> Column:
    """No schema, or an integer literal that is a known version."""
    version = F.when(_type_of("$[0].schema") == "BIGINT", F.try_variant_get("strict", "$[0].schema", "bigint"))
    absent = F.try_variant_get("strict", "$[0].schema", "variant").isNull()
    return absent | F.coalesce(version.isin(*SCHEMA_VERSIONS), F.lit(False))


def _has_bad_escape(text: Column) -> Column:
    """Whether JSON writes U+0000 or half a surrogate pair: Spark would read these as a NUL and a question mark."""
    escapes = F.replace(text, F.lit("\\\\"), F.lit("__"))
    return text.contains("\\u") & F.regexp_replace(escapes, _SURROGATE_PAIR, "_").rlike(_NUL_OR_SURROGATE)


def _too_deep(text: Column) -> Column:
    """Whether brackets outside strings nest too deep, read from the left; a backslash hides the character after it."""
    without_openings = F.replace(F.replace(text, F.lit("["), F.lit("")), F.lit("{"), F.lit(""))
    openings = F.octet_length(text) - F.octet_length(without_openings)
    return (openings > MAX_NESTING) & (_depth(text) > MAX_NESTING)


def _depth(text: Column) -> Column:
    unescaped = F.regexp_replace(text, r"(?s)\\.", "")
    outside_strings = F.regexp_replace(unescaped, '"[^"]*(?:"|\\z)', "")
    brackets = F.regexp_replace(outside_strings, r"[^\[\]{}]", "")
    start = F.struct(F.lit(0).alias("now"), F.lit(0).alias("most"))

    def step(depth: Column, bracket: Column) -> Column:
        now = depth["now"] + F.when(bracket.isin("[", "{"), 1).when(bracket.isin("]", "}"), -1).otherwise(0)
        return F.struct(now.alias("now"), F.greatest(depth["most"], now).alias("most"))

    return F.aggregate(F.split(brackets, ""), start, step, lambda depth: depth["most"])
