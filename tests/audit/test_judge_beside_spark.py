"""The oracle and the layers' Spark expression, written apart, judge the same bytes alike."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest

from infra.malformed import MALFORMED
from serving.audit.judge import Event, judge
from tests.audit.test_judge import BAD_TIMES, value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIECES = (
    *(
        b'"',
        b"\\",
        b"\\u",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"0",
        b"1e5",
        b"-",
        b".",
        b"\x00",
        b"\xff",
        b" ",
        b"null",
        b"NaN",
        b"\\ud800",
    ),
    *(b"\\ud800", b"\\udc00", b"\n", b"//", b"\xc3\xa9", b"'", b'"schema":1,', b"+01:00", b"E"),
)
_LIMITS = [
    json.dumps(json.loads(value()) | {"extra": 0}).encode().replace(b'"extra": 0', extra)
    for digits in (998, 999, 1_000, 1_001)
    for extra in (b'"x":' + b"9" * digits, b'"x":-' + b"9" * digits, b'"x":1.' + b"9" * digits, b'"x":1e1' + b"0" * (digits - 1))
] + [
    json.dumps(json.loads(value()) | {name: 1}, ensure_ascii=False).encode()
    for name in ("n" * 50_000, "n" * 50_001, "\U0001f600" * 25_000, "\U0001f600" * 25_001, "\u00e9" * 50_000, "\u00e9" * 50_001)
]
"""Just below and above what the reader takes: digits of a number, UTF-16 units of a name."""


def damaged(random: Random, good: bytes) -> bytes:
    text = bytearray(good)
    for _ in range(random.choice((1, 1, 2, 3))):
        at, kind = random.randrange(len(text) + 1), random.random()
        if kind < 0.5:
            text[at:at] = random.choice(_PIECES)
        elif kind < 0.8:
            del text[at : at + random.randrange(1, 6)]
        else:
            text[at : at + 1] = random.choice(_PIECES)
    return bytes(text)


@pytest.mark.spark
def test_the_layers_and_the_oracle_judge_damaged_events_alike(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from views.parse import parse

    random = Random(20_260_301)
    plain = [value(), value(schema=1, extra={"a": [1, {"b": "c"}]}), value(merchant_id="é\U0001f600")]
    cases = [*(value(event_time=time) for time in BAD_TIMES), *(broken(value()) for broken in MALFORMED.values()), *plain, *_LIMITS]
    cases += [damaged(random, random.choice(plain)) for _ in range(3_000)]
    frame = spark.createDataFrame([(number, case and bytearray(case)) for number, case in enumerate(cases)], "number int, value binary")
    rows = parse(frame).select("*", F.unix_micros("event_time").alias("us"), F.xxhash64("transaction_id").alias("id_hash")).collect()

    assert len(rows) == len(cases)
    for row in rows:
        verdict = judge(cases[row.number])
        if isinstance(verdict, Event):
            found = (row.transaction_id, row.us, row.account_id, row.merchant_id, row.amount_cents, row.currency, row.kind, row.id_hash)
            assert (row.reason, found) == (None, tuple(verdict)), cases[row.number]
        else:
            assert row.reason == verdict, cases[row.number]
