"""`seam produce` and `seam audit` as a user runs them, on a real broker and a real store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.kafka_log import KafkaLog
from serving.audit.sources import read_dump
from tests.audit.audited_line import AuditedLine

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = pytest.mark.stack

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def seam(kafka: Kafka, topic: str, fresh_database_url: str, home: Path) -> Run:
    settings = {"HOME": str(home), "KAFKA_BOOTSTRAP": kafka.bootstrap, "TOPIC": topic, "DATABASE_URL": fresh_database_url}
    environment = {**os.environ, **{f"SEAM_{name}": value for name, value in settings.items()}}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flows.cli", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.fixture
def ledgers(seam: Run, tmp_path: Path) -> list[Path]:
    """Two days, the second with re-deliveries of the first."""
    paths = [tmp_path / "day-one.jsonl", tmp_path / "day-two.jsonl"]
    for day, path, more in (("2026-03-01", paths[0], ()), ("2026-03-02", paths[1], ("--redeliver-from", str(paths[0])))):
        shares = ("--duplicates", "0.2", "--malformed", "0.02", "--seed", "9")
        produced = seam("produce", "--events", "1500", "--day", day, "--ledger", str(path), *shares, *more, "--json")
        assert produced.returncode == 0, produced.stderr
        assert json.loads(produced.stdout)["events"] == 1500
    assert json.loads(produced.stdout)["deliveries"]["redelivery_of_earlier_run"] > 50
    return paths


@pytest.fixture
def line(kafka: Kafka, topic: str, fresh_database_url: str, ledgers: list[Path]) -> Iterator[AuditedLine]:
    with KafkaLog(kafka.bootstrap, topic) as log:
        line = AuditedLine(fresh_database_url, topic, log.topic_id())
    line.commit([delivery for path in ledgers for delivery in read_dump(path)])
    yield line
    line.close()


def test_an_audit_of_the_topic_and_one_of_the_ledgers_agree_and_end_well(seam: Run, line: AuditedLine, ledgers: list[Path]) -> None:
    of_topic = seam("audit")
    of_ledgers = seam("audit", *(word for path in ledgers for word in ("--from-dump", str(path))))

    assert (of_topic.returncode, of_ledgers.returncode) == (0, 0), of_topic.stderr + of_ledgers.stderr
    assert of_topic.stdout == of_ledgers.stdout
    assert of_topic.stdout.splitlines()[-1].endswith("cells compared, 0 differ")


def test_a_dump_of_the_topic_can_be_audited_again(seam: Run, line: AuditedLine, tmp_path: Path) -> None:
    first = seam("audit", "--dump", str(tmp_path / "dump"), "--json")
    again = seam("audit", "--from-dump", str(tmp_path / "dump"), "--json")

    assert first.returncode == 0 and json.loads(first.stdout)["exact"] is True
    assert json.loads(first.stdout) == json.loads(again.stdout)


def test_a_planted_difference_is_shown_with_both_numbers_and_the_exit_code_is_1(seam: Run, line: AuditedLine) -> None:
    line.damage("UPDATE {revenue} SET transactions = transactions + 5 WHERE ctid = (SELECT min(ctid) FROM {revenue})")

    audited = seam("audit", "--view", "revenue_by_merchant")
    assert audited.returncode == 1
    assert "revenue_by_merchant merchant_id=shop-" in audited.stdout and "expected {'transactions': " in audited.stdout
    assert audited.stdout.splitlines()[-1].endswith("cells compared, 1 differ")
    assert seam("audit", "--view", "account_activity").returncode == 0


def test_an_unknown_view_is_said_with_the_known_ones(seam: Run) -> None:
    audited = seam("audit", "--view", "nonsense")

    assert audited.returncode == 1 and "system_usage, revenue_by_merchant, account_activity" in audited.stderr


def test_raw_lines_are_replayed(seam: Run, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b'{"account_id":"a-1"}\n\xff\n')
    produced = seam("produce", "--from", str(tmp_path / "lines"), "--ledger", str(tmp_path / "ledger"), "--json")

    assert json.loads(produced.stdout)["deliveries"] == {"replay": 2}
    assert {delivery.value for delivery in read_dump(tmp_path / "ledger")} == {b'{"account_id":"a-1"}', b"\xff"}
