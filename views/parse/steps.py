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
    not merge two steps where the later one uses a costly column of the earlier one twice.
    """
    carried = [name for name in deliveries.columns if name not in _NAMES]
    read = (
        deliveries.select(*carried, _value_hash().alias("value_hash"), _unread().alias("unread"))
        .select("*", F.when(F.col("unread").isNull(), fields.read(_text())).alias("read"))
        .select("*", *fields.given(F.col("read")))
        .select("*", *(fields.checked(field).alias(field.name) for field in EVENT_FIELDS))
        .select("*", proof.proven(_text()).alias("proven"))
    )
    doubtful = F.col("unread").isNull() & ~F.col("proven")
    judged = (
        read.select(*carried, "value_hash", "unread", "proven", *_NAMES, F.when(doubtful, strict.parsed(_text())).alias("strict"))
        .select(*carried, "value_hash", "unread", "proven", "strict", *(_known(field).alias(field.name) for field in EVENT_FIELDS))
        .select(*carried, "value_hash", *_NAMES, _reason().alias("reason"))
    )
    return judged.select(*carried, "value_hash", "reason", mask.masked().alias("masked"), *_NAMES)


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


def _known(field: Field) -> Column:
    """A field in its right JSON type. The others than text cannot be mistaken: no other JSON type reads as they do."""
    checked = F.col(field.name)
    if field.kind is not FieldKind.TEXT:
        return checked
    return F.when(F.col("proven"), checked).otherwise(fields.in_length(field, strict.string(field.name)))


def _reason() -> Column:
    """The first reason that applies, in the order of `Reason`."""
    bad_field = F.coalesce(*(F.when(F.col(field.name).isNull(), str(field_reason(field))) for field in EVENT_FIELDS))
    return (
        F.when(F.col("proven"), F.lit(None))
        .when(F.col("unread").isNotNull(), F.col("unread"))
        .otherwise(F.coalesce(strict.reason(_text()), bad_field))
    )
