"""The ledger as a file: what is written is read back, and nothing is ever overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.deliveries import Planned, Role
from infra.ledger import Entry, LedgerWriter, earlier_events, read_ledger
from serving.audit.recount import Delivery
from serving.audit.sources import keep_dump, read_dump
from serving.errors import BadRequest

EVENT = b'{"transaction_id":"t-1","account_id":"a-\xc3\xa9","note":"\\"event\\":{}, x"}'
FIRST = Planned(Role.FIRST, b"a-1", EVENT, None)
NULL = Planned(Role.MALFORMED, None, None, 1)
BROKEN = Planned(Role.MALFORMED, None, b'\xff\n"event":', 1)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "new folder" / "ledger.jsonl"
    with LedgerWriter(path, {"topic": "transactions"}) as writer:
        writer.intend(0, 5)
        writer.acknowledge(FIRST, 3, 17, 1_772_323_200_000)
        writer.acknowledge(NULL, 1, 0, 1_772_323_200_001)
        writer.fail(FIRST, "too large")
        writer.leave_unknown(FIRST, "timed out")
        writer.acknowledge(BROKEN, 1, 1, 1_772_323_200_001)
        writer.end({"acknowledged": 3, "failed": 1, "unknown": 1})
    return path


def test_acknowledged_deliveries_are_read_back_byte_for_byte(ledger: Path) -> None:
    assert list(read_ledger(ledger)) == [
        Entry(3, 17, 1_772_323_200_000, EVENT, Role.FIRST),
        Entry(1, 0, 1_772_323_200_001, None, Role.MALFORMED),
        Entry(1, 1, 1_772_323_200_001, BROKEN.value, Role.MALFORMED),
    ]


def test_every_line_is_json_and_the_last_one_is_the_end(ledger: Path) -> None:
    lines = [json.loads(line) for line in ledger.read_bytes().splitlines()]

    assert lines[0] == {"ledger": 1, "topic": "transactions"}
    assert lines[1] == {"intent": [0, 5]}
    assert lines[2]["event"]["transaction_id"] == "t-1"
    assert lines[-1] == {"end": {"acknowledged": 3, "failed": 1, "unknown": 1}}


def test_the_audit_reads_a_ledger_as_if_it_were_the_log(ledger: Path) -> None:
    assert list(read_dump(ledger)) == [Delivery(*entry[:4]) for entry in read_ledger(ledger)]


def test_half_a_last_line_of_a_run_that_died_is_passed_over(ledger: Path) -> None:
    before = list(read_ledger(ledger))
    with ledger.open("ab") as cut_off:
        cut_off.write(b'{"partition":0,"offset":9,"log_ti')

    assert list(read_ledger(ledger)) == before
    assert len(list(read_dump(ledger))) == len(before)


def test_an_existing_ledger_is_never_overwritten(ledger: Path) -> None:
    before = ledger.read_bytes()

    with pytest.raises(BadRequest, match="another --ledger"):
        LedgerWriter(ledger, {})
    assert ledger.read_bytes() == before


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"ledger":1}\n{"partition":0,"offset":"x"}\n')

    with pytest.raises(BadRequest, match="line 2"):
        list(read_ledger(path))
    with pytest.raises(BadRequest, match="line 2"):
        list(read_dump(path))


def test_events_to_deliver_again_are_those_that_were_sent_first(ledger: Path) -> None:
    assert earlier_events(ledger) == [("a-é".encode(), EVENT)]


def test_a_dump_gives_back_what_passed_through_it(tmp_path: Path) -> None:
    deliveries = [Delivery(0, 1, 5, EVENT), Delivery(2, 9, 6, None), Delivery(1, 0, 7, b""), Delivery(1, 1, 7, b"\xff\n")]
    path = tmp_path / "dump.jsonl"

    assert list(keep_dump(deliveries, path)) == deliveries
    assert list(read_dump(path)) == deliveries
