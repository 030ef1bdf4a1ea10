"""Values for the parser: one good event, and a seeded source of texts near the edge between an event and none."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from random import Random

import pyarrow as pa

LOG_TIME = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)

GOOD: dict[str, object] = {
    "transaction_id": "t-1",
    "event_time": "2026-03-01T12:00:05Z",
    "account_id": "a-1",
    "merchant_id": "m-1",
    "amount_cents": 1250,
    "currency": "EUR",
    "kind": "purchase",
}

ODD_VALUES: dict[str, tuple[str, ...]] = {
    "transaction_id": (
        '"t"',
        '""',
        "5",
        "null",
        "true",
        '"\\u0041"',
        '"\\ud800"',
        '"\\u0000"',
        '"é\U0001f600"',
        '"' + "x" * 64 + '"',
        '"5"',
    ),
    "event_time": (
        *('"2026-03-01T12:00:05.123456Z"', '"2026-03-01T12:00:05.1234567Z"', '"2026-03-01t12:00:05z"', '"2026-02-29T00:00:00Z"'),
        *('"2028-02-29T00:00:00+23:59"', '"1999-12-31T23:59:59-00:01"', '"2100-01-01T00:00:00+00:01"', '"2026-03-01T24:00:00Z"', "2026"),
        *(
            '"2026-03-01T12:00:60Z"',
            '"2026-03-01 12:00:05Z"',
            '"2026-03-01T12:00:05"',
            '"2026-03-01T12:00:05+24:00"',
            '"2026-03-01T12:00:05.Z"',
        ),
    ),
    "account_id": ('"a"', '""', "-1", "1.5", "[]", "{}", '["a"]', '"' + "y" * 65 + '"', '"a\\"b"', '"\\\\u0000"', '"]"', '"a\tb"', "false"),
    "merchant_id": ('"m"', '{"merchant_id":"m"}', "0", '"\U0001f600"', '"' + "\U0001f600" * 64 + '"', '"m}"', '"m\\n"', '"\\/"', "1e400"),
    "amount_cents": (
        *("0", "-0", "1", "-1", "1000000000000", "1000000000001", "-1000000000000", "-1000000000001", "9223372036854775807", "1.0", "1e3"),
        *("12345678901234567890", "1e400", '"1"', "null", "true", "NaN", "Infinity", "01", "+1", "-", "1.", ".5", "0x1", "[1]"),
    ),
    "currency": ('"USD"', '"usd"', '"EU"', '"EURO"', '"EUR\\n"', '"\\u0045UR"', "null", "123", '"ÉUR"'),
    "kind": ('"refund"', '"transfer"', '"Purchase"', '"purchase "', "1", "null", '["purchase"]', '"refun\\u0064"'),
    "schema": ("1", "1", "1", "2", "0", "-1", '"1"', "1.0", "1e0", "null", "true", "[1]", "01", "1 "),
}
EXTRA_NAMES = ("x", "", "kind ", "Kind", "k\\u0069nd", "schema2", "\\ud800", "é", "transaction_id", "currency", "schema")
EXTRA_VALUES = (
    *(
        "0",
        "1.5",
        "1e400",
        "-0.0",
        '""',
        '"x"',
        "null",
        "true",
        "[]",
        "{}",
        "[1,[2,{}]]",
        '{"a":1}',
        '{"a":1,"a":2}',
        '{"a":1,"\\u0061":2}',
    ),
    *(
        '"\\u0000"',
        '"\\ud83d\\ude00"',
        '"\\ude00"',
        '"]"',
        '"}"',
        '"\\""',
        '{"transaction_id":"t"}',
        "NaN",
        "'x'",
        "[1,]",
        "nul",
        "1" * 400,
    ),
)
PIECES = (
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
        b"-",
        b".",
        b"e9",
        b"\x00",
        b"\x1f",
        b"\x7f",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
    ),
    *(
        b" ",
        b"\t",
        b"\n",
        b"\r",
        b"\x0b",
        b"\xc2\xa0",
        b"\xef\xbb\xbf",
        b"null",
        b"NaN",
        b"//",
        b"/**/",
        b"'",
        b"\\ud800",
        b"\\udc00",
        b"\\u0000",
        b"#",
    ),
)


def event(**changes: object) -> bytes:
    """The good event with `changes`; a field changed to `...` is left out."""
    fields = {name: value for name, value in {**GOOD, **changes}.items() if value is not ...}
    return json.dumps(fields, separators=(",", ":")).encode()


def written(**changes: str) -> bytes:
    """The good event with fields changed to what is written, as it is written."""
    texts = {name: json.dumps(value) for name, value in GOOD.items()} | changes
    return ("{" + ",".join(f'"{name}":{text}' for name, text in texts.items()) + "}").encode()


def near_event(random: Random) -> bytes:
    """A text that is an event, or nearly one: odd values, odd extra members, repeated names, spaces, damaged bytes."""
    members = [(name, json.dumps(value, ensure_ascii=random.random() < 0.5)) for name, value in GOOD.items()]
    for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
        name = random.choice(list(ODD_VALUES))
        members = [member for member in members if member[0] != name] + [(name, random.choice(ODD_VALUES[name]))]
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        members.append((random.choice(EXTRA_NAMES), random.choice(EXTRA_VALUES)))
    if random.random() < 0.06:
        members.append(random.choice(members))
    if random.random() < 0.06:
        members.pop(random.randrange(len(members)))
    if random.random() < 0.5:
        random.shuffle(members)
    text = _join(members, random).encode()
    return text if random.random() < 0.6 else damaged(text, random)


def _join(members: list[tuple[str, str]], random: Random) -> str:
    comma, colon, around = random.choice(((",", ":", ""), (", ", ": ", ""), (",", ":", " "), (" ,\n", "\t:\r ", "\n"), (",", ": ", "")))
    return around + "{" + comma.join(f'"{name}"{colon}{value}' for name, value in members) + "}" + around


def damaged(text: bytes, random: Random) -> bytes:
    changed = bytearray(text)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.choice((0, len(changed), random.randrange(len(changed) + 1)))
        match random.randrange(5):
            case 0:
                changed[at:at] = random.choice(PIECES)
            case 1:
                changed[at : at + 1] = random.choice(PIECES)
            case 2:
                del changed[at : at + random.randrange(1, 9)]
            case 3:
                changed[at : at + 1] = bytes([random.randrange(256)])
            case _:
                other = random.randrange(len(changed) + 1)
                changed[at:at] = changed[min(at, other) : max(at, other)][:60]
    return bytes(changed)


def deliveries(values: list[bytes | None]) -> pa.Table:
    """`values` as Spark's Kafka source would give them, over four partitions; `offset` is the place in the list."""
    return pa.table(
        {
            "key": pa.array([None] * len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array([at % 4 for at in range(len(values))], pa.int32()),
            "offset": pa.array(range(len(values)), pa.int64()),
            "timestamp": pa.array([LOG_TIME] * len(values), pa.timestamp("us", tz="UTC")),
        }
    )
