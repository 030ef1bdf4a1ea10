"""The steps of the strict parse, and the reason that is recorded."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from views.event import EVENT_FIELDS, MAX_EVENT_BYTES, Field, FieldKind, Reason, field_reason
from views.parse import fields, mask, proof, strict

_NAMES = [field.name for field in EVENT_FIELDS]


def parse(deliveries: DataFrame) -> DataFrame:
    """`deliveries` (with `value`) plus `value_hash`, `reason` (null for an event), `masked` and one column per event field.

    Fields mean nothing where `reason` is not null. Each `select` is a step whose columns Spark computes once: it does
    not merge two steps where the later one uses a costly column of the earlier one twice. It would push a later filter
    on `reason` down through all of them, and so compute them twice, but for the `explode`, which it does not pass;
    filters on carried columns still reach the source.
    """
    carried = [name for name in deliveries.columns if name not in _NAMES]
    read = F.when(F.col("unread").isNull(), fields.read(_text()))
    instants = [field for field in EVENT_FIELDS if field.kind is FieldKind.INSTANT]
    return (
        deliveries.select(*carried, _value_hash().alias("value_hash"), _unread().alias("unread"))
        .select("*", *fields.given(read))
        .select("*", *(fields.instant_us(field).alias(f"us_{field.name}") for field in instants))
        .select("*", *(fields.checked(field).alias(field.name) for field in EVENT_FIELDS))
        .select(*carried, "value_hash", "unread", *_NAMES, F.explode_outer(F.array(proof.proven(_text()))).alias("proven"))
        .select("*", F.when(~F.col("proven"), _judged()).alias("judged"))
        .select(*carried, "value_hash", "judged.reason", "judged.masked", *(_known(field).alias(field.name) for field in EVENT_FIELDS))
    )


def _text() -> Column:
    return F.col("value").cast("string")


def _value_hash() -> Column:
    return F.when(F.col("value").isNull(), F.lit(0).cast("bigint")).otherwise(F.xxhash64("value"))


def _unread() -> Column:
    """Why the value is not even read, where that is so."""
    size = F.length("value")
    return (
        F.when(size.isNull() | (size == 0), str(Reason.NO_VALUE))
        .when(size > MAX_EVENT_BYTES, str(Reason.TOO_LARGE))
        .when(~F.is_valid_utf8(_text()), str(Reason.NOT_UTF8))
    )


def _judged() -> Column:
    """Of a delivery that is not proven an event: `reason` and `masked`, and its text fields if it is one after all."""
    nothing = strict.refused(None)
    return strict.let(F.when(F.col("unread").isNull(), strict.verdict(_text())).otherwise(nothing), _with_reason)


def _with_reason(verdict: Column) -> Column:
    """The first reason that applies, in the order of `Reason`."""
    texts = {field.name: fields.in_length(field, verdict[field.name]) for field in EVENT_FIELDS if field.kind is FieldKind.TEXT}
    bad = (F.when(texts.get(field.name, F.col(field.name)).isNull(), str(field_reason(field))) for field in EVENT_FIELDS)
    columns = [text.alias(name) for name, text in texts.items()]
    return strict.let(
        F.coalesce(F.col("unread"), verdict["reason"], *bad),
        lambda reason: F.struct(reason.alias("reason"), F.when(reason.isNotNull(), mask.masked(F.col("value"))).alias("masked"), *columns),
    )


def _known(field: Field) -> Column:
    """A field in its right JSON type. Only text can be mistaken: no other JSON type reads like the rest."""
    checked = F.col(field.name)
    return checked if field.kind is not FieldKind.TEXT else F.when(F.col("proven"), checked).otherwise(F.col("judged")[field.name])
