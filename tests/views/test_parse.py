"""The strict parse beside an oracle of its own: every value is judged alike, and no bytes stop it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.views.conftest import setting
from tests.views.strict_json import id_hashes, judge, signed_hash
from tests.views.texts import GOOD, PIECES, deliveries, event, near_event, written
from views.event import Reason
from views.registry import ALL_VIEWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("generated_code")]

SEED = 20_260_301
EVENT_COLUMNS = ("id_hash", "id_hash2", "window_60", "window_86400", *GOOD)

TIMES = {
    "2026-03-01T12:00:05.123456Z": True,
    "2026-03-01T12:00:05.1Z": True,
    "2026-03-01t12:00:05z": True,
    "2026-03-01T12:00:05+01:00": True,
    "2026-03-01T12:00:05-00:00": True,
    "2026-03-01T12:00:05+23:59": True,
    "2026-03-01T12:00:05-18:01": True,
    "2028-02-29T00:00:00Z": True,
    "2000-02-29T00:00:00Z": True,
    "2000-01-01T00:00:00Z": True,
    "1999-12-31T23:30:00-01:00": True,
    "2099-12-31T23:59:59.999999Z": True,
    "2100-01-01T00:00:00+00:01": True,
    "1999-12-31T23:59:59.999999Z": False,
    "2000-01-01T00:00:00+00:01": False,
    "2100-01-01T00:00:00Z": False,
    "2099-12-31T23:59:59-00:01": False,
    "2026-02-29T12:00:00Z": False,
    "2026-04-31T12:00:00Z": False,
    "2026-13-01T12:00:00Z": False,
    "2026-00-01T12:00:00Z": False,
    "2026-03-00T12:00:00Z": False,
    "2026-03-01T24:00:00Z": False,
    "2026-03-01T12:60:00Z": False,
    "2026-06-30T23:59:60Z": False,
    "2026-03-01T12:00:05": False,
    "2026-03-01T12:00Z": False,
    "2026-03-01 12:00:05Z": False,
    "2026-03-01T12:00:05.Z": False,
    "2026-03-01T12:00:05.1234567Z": False,
    "2026-03-01T12:00:05,5Z": False,
    "2026-03-01T12:00:05+25:00": False,
    "2026-03-01T12:00:05+24:00": False,
    "2026-03-01T12:00:05+01:60": False,
    "2026-03-01T12:00:05+0100": False,
    "2026-03-01T12:00:05+01": False,
    "2026-03-01T12:00:05 Z": False,
    "2026-03-01T12:00:05Z\n": False,
    " 2026-03-01T12:00:05Z": False,
    "+2026-03-01T12:00:05Z": False,
    "26-03-01T12:00:05Z": False,
    "0000-01-01T00:00:00Z": False,
    "9999-12-31T23:59:59-23:59": False,
    "２026-03-01T12:00:05Z": False,
    "2026-03-01T12:00:05Europe/Berlin": False,
    "": False,
    "now": False,
}

QUARANTINED: dict[str, tuple[bytes | None, Reason]] = {
    "null value": (None, Reason.NO_VALUE),
    "empty value": (b"", Reason.NO_VALUE),
    "5 MB value": (b"x" * (5 << 20), Reason.TOO_LARGE),
    "5 MB of event": (event(extra="x" * (5 << 20)), Reason.TOO_LARGE),
    "bad UTF-8": (event().replace(b"m-1", b"\xff"), Reason.NOT_UTF8),
    "surrogate as bytes": (event().replace(b"m-1", b"\xed\xa0\x80"), Reason.NOT_UTF8),
    "overlong NUL": (event().replace(b"m-1", b"\xc0\x80"), Reason.NOT_UTF8),
    "deep arrays": (written(x="[" * 64 + "]" * 64), Reason.TOO_DEEP),
    "very deep objects": (b'{"x":' * 150_000, Reason.TOO_DEEP),
    "very deep arrays": (b"[" * 1_000_000, Reason.TOO_DEEP),
    "blank": (b" \n", Reason.NOT_JSON),
    "broken JSON": (event()[:-1], Reason.NOT_JSON),
    "trailing text": (event() + b" x", Reason.NOT_JSON),
    "trailing bracket": (event() + b"]", Reason.NOT_JSON),
    "trailing bracket and more": (event() + b'] {"a":1', Reason.NOT_JSON),
    "two events": (event() + event(), Reason.NOT_JSON),
    "two events, comma": (event() + b"," + event(), Reason.NOT_JSON),
    "byte order mark": (b"\xef\xbb\xbf" + event(), Reason.NOT_JSON),
    "UTF-16": (event().decode().encode("utf-16-le"), Reason.NOT_JSON),
    "single quotes": (event().replace(b'"', b"'"), Reason.NOT_JSON),
    "comment": (event() + b"// x", Reason.NOT_JSON),
    "trailing comma": (event()[:-1] + b",}", Reason.NOT_JSON),
    "name twice": (event()[:-1] + b',"kind":"purchase"}', Reason.NOT_JSON),
    "name twice, one escaped": (event()[:-1] + b',"\\u006bind":"purchase"}', Reason.NOT_JSON),
    "unknown name twice": (event()[:-1] + b',"":0,"":0}', Reason.NOT_JSON),
    "name twice inside": (written(x='[{"a":1,"a":1}]'), Reason.NOT_JSON),
    "NaN amount": (written(amount_cents="NaN"), Reason.NOT_JSON),
    "NaN elsewhere": (event()[:-1] + b',"":NaN}', Reason.NOT_JSON),
    "leading zero": (written(amount_cents="01"), Reason.NOT_JSON),
    "raw control character": (event().replace(b"m-1", b"m\t1"), Reason.NOT_JSON),
    "raw NUL": (event().replace(b"m-1", b"m\x001"), Reason.NOT_JSON),
    "over 1,000 digits": (written(x="9" * 1001), Reason.NOT_JSON),
    "array": (b"[" + event() + b"]", Reason.NOT_AN_OBJECT),
    "null": (b"null", Reason.NOT_AN_OBJECT),
    "string": (b'"x"', Reason.NOT_AN_OBJECT),
    "number": (b"1", Reason.NOT_AN_OBJECT),
    "lone surrogate": (written(merchant_id='"\\ud800"'), Reason.BAD_TEXT),
    "lone surrogate, not ours": (written(x='"\\udfff"'), Reason.BAD_TEXT),
    "lone surrogate in a name": (event()[:-1] + b',"\\uD800":1}', Reason.BAD_TEXT),
    "surrogates swapped": (written(merchant_id='"\\ude00\\ud83d"'), Reason.BAD_TEXT),
    "U+0000": (written(merchant_id='"m\\u0000"'), Reason.BAD_TEXT),
    "U+0000 after an escaped backslash": (written(merchant_id='"m\\\\\\u0000"'), Reason.BAD_TEXT),
    "U+0000 not ours": (written(x='["\\u0000"]'), Reason.BAD_TEXT),
    "schema 2": (event(schema=2), Reason.UNKNOWN_SCHEMA),
    "schema as text": (event(schema="1"), Reason.UNKNOWN_SCHEMA),
    "schema null": (event(schema=None), Reason.UNKNOWN_SCHEMA),
    "schema 1.0": (written(schema="1.0"), Reason.UNKNOWN_SCHEMA),
    "schema wins over fields": (written(schema="2", kind="1"), Reason.UNKNOWN_SCHEMA),
    "empty object": (b"{}", Reason.BAD_TRANSACTION_ID),
    "id is a number": (event(transaction_id=5), Reason.BAD_TRANSACTION_ID),
    "id is empty": (event(transaction_id=""), Reason.BAD_TRANSACTION_ID),
    "id over-long": (event(transaction_id="x" * 65), Reason.BAD_TRANSACTION_ID),
    "id null": (event(transaction_id=None), Reason.BAD_TRANSACTION_ID),
    "id missing": (event(transaction_id=...), Reason.BAD_TRANSACTION_ID),
    "id is a number beside one that is not": (written(transaction_id="5", x='{"transaction_id":"t"}'), Reason.BAD_TRANSACTION_ID),
    "name in capitals": (event().replace(b'"account_id"', b'"ACCOUNT_ID"'), Reason.BAD_ACCOUNT_ID),
    "account is a list": (event(account_id=["a"]), Reason.BAD_ACCOUNT_ID),
    "merchant is true": (event(merchant_id=True), Reason.BAD_MERCHANT_ID),
    "merchant over-long by an emoji": (event(merchant_id="\U0001f600" * 65), Reason.BAD_MERCHANT_ID),
    "merchant is an object with a member of that name": (written(merchant_id='{"merchant_id":"m"}'), Reason.BAD_MERCHANT_ID),
    "merchant is an infinite number": (written(merchant_id="1e400"), Reason.BAD_MERCHANT_ID),
    "20-digit amount": (written(amount_cents="12345678901234567890"), Reason.BAD_AMOUNT_CENTS),
    "1e400 amount": (written(amount_cents="1e400"), Reason.BAD_AMOUNT_CENTS),
    "1e3 amount": (written(amount_cents="1e3"), Reason.BAD_AMOUNT_CENTS),
    "1.0 amount": (written(amount_cents="1.0"), Reason.BAD_AMOUNT_CENTS),
    "amount as text": (event(amount_cents="1"), Reason.BAD_AMOUNT_CENTS),
    "amount true": (event(amount_cents=True), Reason.BAD_AMOUNT_CENTS),
    "amount too great": (event(amount_cents=10**12 + 1), Reason.BAD_AMOUNT_CENTS),
    "amount too small": (event(amount_cents=-(10**12) - 1), Reason.BAD_AMOUNT_CENTS),
    "currency in lower case": (event(currency="eur"), Reason.BAD_CURRENCY),
    "currency and a line end": (event(currency="EUR\n"), Reason.BAD_CURRENCY),
    "unknown kind": (event(kind="gift"), Reason.BAD_KIND),
}

ACCEPTED: dict[str, bytes] = {
    "compact": event(),
    "schema 1": event(schema=1),
    "spaces everywhere": b" \n" + event().replace(b",", b" ,\t").replace(b'":', b'" :\r\n') + b"\n ",
    "other order": b"{" + b",".join(reversed(event()[1:-1].split(b","))) + b"}",
    "unknown fields": event(x=[1, {"y": "]"}], z=None),
    "same name inside": written(x='{"transaction_id":5}'),
    "1e400 elsewhere": written(x="1e400"),
    "1,000 digits elsewhere": written(x="9" * 1000),
    "deepest": written(x="[" * 63 + "]" * 63),
    "brackets in a string": written(x='"' + "[" * 1000 + '"'),
    "minus zero": written(amount_cents="-0"),
    "greatest amount": event(amount_cents=10**12),
    "least amount": event(amount_cents=-(10**12)),
    "64 emoji": event(transaction_id="\U0001f600" * 64),
    "64 raw emoji": event().replace(b"t-1", ("\U0001f600" * 64).encode()),
    "surrogate pair": written(merchant_id='"\\ud83d\\uDE00"'),
    "escaped backslash before u0000": written(merchant_id='"\\\\u0000"'),
    "escaped quote": written(merchant_id='"\\""'),
    "closing bracket in an id": event(account_id="a]"),
    "numeric text": event(transaction_id="5"),
    "escaped name": event().replace(b'"kind"', b'"k\\u0069nd"'),
    "U+FFFF and U+007F": event(merchant_id="\uffff\x7f"),
    "largest": event(x="x" * ((1 << 20) - len(event(x="")))),
}


def judged(spark: SparkSession, values: Sequence[bytes | None]) -> list[dict[str, Any]]:
    from views.lift import lift

    frame = spark.createDataFrame(deliveries(list(values)))
    rows = lift(frame, ALL_VIEWS, with_fields=tuple(set(GOOD) - {"event_time"})).toArrow().to_pylist()
    rows.sort(key=lambda row: row["offset"])
    assert [row["offset"] for row in rows] == list(range(len(values)))
    return rows


def assert_judged_as_by_the_oracle(spark: SparkSession, values: Sequence[bytes | None]) -> None:
    for value, row in zip(values, judged(spark, values), strict=True):
        verdict = judge(value)
        shown = (value or b"")[:400]
        assert row["value_hash"] == (0 if value is None else signed_hash(value)), shown
        if isinstance(verdict, str):
            assert row["reason"] == verdict, shown
            assert [row[name] for name in EVENT_COLUMNS] == [None] * len(EVENT_COLUMNS), shown
            assert len(row["masked"]) <= 120 and row["masked"].isprintable() and row["masked"].isascii(), shown
        else:
            assert (row["reason"], row["masked"]) == (None, None), shown
            assert {name: row[name] for name in GOOD} == verdict, shown
            assert (row["id_hash"], row["id_hash2"]) == id_hashes(str(verdict["transaction_id"])), shown
            seconds = int(row["event_time"].timestamp())
            assert (row["window_60"], row["window_86400"]) == (seconds - seconds % 60, seconds - seconds % 86_400), shown


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_each_kind_of_bad_value_has_its_reason_and_each_odd_but_good_one_is_an_event(spark: SparkSession, ansi: str) -> None:
    values = [*(value for value, _ in QUARANTINED.values()), *ACCEPTED.values()]
    with setting(spark, "spark.sql.ansi.enabled", ansi):
        found = [row["reason"] for row in judged(spark, values)]
    names = [*QUARANTINED, *ACCEPTED]
    expected = [*(str(reason) for _, reason in QUARANTINED.values()), *[None] * len(ACCEPTED)]
    assert dict(zip(names, found, strict=True)) == dict(zip(names, expected, strict=True))
    assert {*expected, None, Reason.BAD_EVENT_TIME} == {*Reason, None}
    assert_judged_as_by_the_oracle(spark, values)


def test_times_are_rfc_3339_with_an_offset_in_the_century_from_2000(spark: SparkSession) -> None:
    values = [event(event_time=text) for text in TIMES]
    found = {text: row["reason"] is None for text, row in zip(TIMES, judged(spark, values), strict=True)}
    assert found == TIMES
    assert_judged_as_by_the_oracle(spark, values)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_values_near_the_edge_are_judged_as_by_the_oracle(spark: SparkSession, ansi: str) -> None:
    random = Random(f"{SEED} {ansi}")
    values = [near_event(random) for _ in range(20_000 if ansi == "true" else 4_000)]
    with setting(spark, "spark.sql.ansi.enabled", ansi):
        assert_judged_as_by_the_oracle(spark, values)
    accepted = sum(not isinstance(judge(value), str) for value in values)
    assert 0.1 < accepted / len(values) < 0.9


def test_plain_interpretation_judges_as_generated_code_does(spark: SparkSession) -> None:
    random = Random(SEED)
    values = [near_event(random) for _ in range(1_000)]
    with setting(spark, "spark.sql.optimizer.excludedRules", ""):
        assert_judged_as_by_the_oracle(spark, values)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    values=st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
            st.lists(st.sampled_from([*PIECES, *event().split(b",")]), max_size=30).map(b"".join),
            st.dictionaries(
                st.sampled_from([*GOOD, "schema", "x"]), st.one_of(st.text(max_size=70), st.integers(), st.floats(), st.none())
            ).map(lambda changes: event(**changes)),
        ),
        min_size=200,
        max_size=400,
    )
)
def test_arbitrary_bytes_are_judged_as_by_the_oracle(spark: SparkSession, values: list[bytes]) -> None:
    assert_judged_as_by_the_oracle(spark, values)


def test_a_quarantined_value_shows_its_structure_and_nothing_of_its_content(spark: SparkSession) -> None:
    secret = event(account_id="4111 1111 1111 1111", merchant_id="Ärzte", kind="gift")
    rows = judged(spark, [secret, None, b"\xff\x00card 4111", "٣\U0001f600e\u0301".encode() + b"x" * 500])
    assert (
        rows[0]["masked"]
        == (
            '{"xxxxxxxxxxx_xx":"x-#","xxxxx_xxxx":"####-##-##x##:##:##x","xxxxxxx_xx":"#### #### #### ####",'
            '"xxxxxxxx_xx":"\\x##x#xxxx","xxxx'
        )[:120]
    )
    assert [row["masked"] for row in rows[1:]] == ["", "..xxxx ####", ("#.xx" + "x" * 500)[:120]]
