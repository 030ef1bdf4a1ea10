"""The strict reading of a text whose strictness is in doubt: what is not JSON, and why.

A variant refuses what RFC 8259 refuses, and names that come twice. It still stops at the end of the first value and
is silent on escapes that write no character; both are closed here. All of it stands in lambdas, which Spark interprets:
so it stays out of the code generated for every delivery, which the JVM compiles only while it is short.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from views.event import EVENT_FIELDS, MAX_NESTING, SCHEMA_VERSIONS, FieldKind, Reason

_TEXTS = [field.name for field in EVENT_FIELDS if field.kind is FieldKind.TEXT]
_SURROGATE_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_NUL_OR_SURROGATE = r"\\u(?:0000|[dD][89a-fA-F])"


def verdict(text: Column) -> Column:
    """A struct: `reason`, if `text` is no event whatever its fields hold, else its text fields where they are strings."""
    return F.when(_too_deep(text), refused(Reason.TOO_DEEP)).otherwise(
        let(F.sha2(text.cast("binary"), 256), lambda digest: let(_parsed(text, digest), lambda parsed: _judge(text, digest, parsed)))
    )


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of `value`, which is computed once; interpreted, not compiled."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _parsed(text: Column, digest: Column) -> Column:
    """A variant whose `$[0]` is the first value in `text`, and whose `$[1]` is the digest if nothing stands between.

    The text cannot contain its own digest: where that is read as the second element, the text is one value.
    """
    return F.try_parse_json(F.concat(F.lit("["), text, F.lit(',"'), digest, F.lit('"]')))


def _judge(text: Column, digest: Column, parsed: Column) -> Column:
    one_value = F.coalesce(F.try_variant_get(parsed, "$[1]", "string") == digest, F.lit(False))
    return (
        F.when(~one_value, refused(Reason.NOT_JSON))
        .when(~_type_of(parsed, "$[0]").startswith("OBJECT<"), refused(Reason.NOT_AN_OBJECT))
        .when(_has_bad_escape(text), refused(Reason.BAD_TEXT))
        .when(~_known_schema(parsed), refused(Reason.UNKNOWN_SCHEMA))
        .otherwise(_verdict(None, [_string(parsed, name) for name in _TEXTS]))
    )


def refused(reason: Reason | None) -> Column:
    """The verdict without fields."""
    return _verdict(reason, [F.lit(None).cast("string")] * len(_TEXTS))


def _verdict(reason: Reason | None, texts: list[Column]) -> Column:
    written = F.lit(None if reason is None else str(reason)).cast("string")
    return F.struct(written.alias("reason"), *(text.alias(name) for name, text in zip(_TEXTS, texts, strict=True)))


def _string(parsed: Column, name: str) -> Column:
    """The field where it is a JSON string: a variant casts only that to binary, whereas its cast to string renders all."""
    return F.try_variant_get(parsed, f"$[0].{name}", "binary").cast("string")


def _type_of(parsed: Column, path: str) -> Column:
    return F.schema_of_variant(F.try_variant_get(parsed, path, "variant"))


def _known_schema(parsed: Column) -> Column:
    """No schema, or an integer literal that is a known version."""
    absent = F.try_variant_get(parsed, "$[0].schema", "variant").isNull()
    version = F.when(_type_of(parsed, "$[0].schema") == "BIGINT", F.try_variant_get(parsed, "$[0].schema", "bigint"))
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
