"""The audit against a real store: right where it is right, and every planted fault is found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from serving.audit.judge import Event, judge
from serving.audit.recount import Delivery
from serving.audit.run import AuditReport, audit
from serving.errors import UnknownLine
from serving.store import database, generations
from tests.audit.audited_line import LINE, AuditedLine, made_log
from views.registry import ALL_VIEWS

LOG = made_log(2_000)


@pytest.fixture
def line(fresh_database_url: str) -> Iterator[AuditedLine]:
    line = AuditedLine(fresh_database_url)
    line.commit(LOG[:900])
    generations.seal(line.conn, LINE)
    line.commit(LOG[900:])
    yield line
    line.close()


def audited(line: AuditedLine, log: list[Delivery] = LOG, sample: int | None = None) -> AuditReport:
    return audit(line.conn, LINE, ALL_VIEWS, lambda since, until: log, sample=sample)


def test_a_right_line_differs_in_no_cell(line: AuditedLine) -> None:
    report = audited(line)

    assert report.exact and report.differences == () and report.problems == ()
    assert report.cells_compared == sum(view.cells_compared for view in report.views) > 3_000
    assert {view.events for view in report.views} == {2_000}
    read = report.deliveries
    assert read.read == len(LOG) == read.counted + read.duplicates + read.quarantined
    assert read.duplicates > 100 and read.quarantined > 20


def test_deliveries_above_the_frontier_are_not_expected(fresh_database_url: str) -> None:
    line = AuditedLine(fresh_database_url)
    line.commit(LOG[:900])

    report = audited(line)
    assert report.exact and report.deliveries.read == 900
    line.close()


def test_the_order_in_which_the_log_is_read_does_not_matter(line: AuditedLine) -> None:
    assert audited(line, log=LOG[::-1]).exact


ONE_CELL = "ctid = (SELECT ctid FROM {revenue} WHERE events = 1 LIMIT 1)"


@pytest.mark.parametrize(
    ("statement", "wrong"),
    [
        ("UPDATE {revenue} SET transactions = transactions + 1 WHERE " + ONE_CELL, {"transactions"}),
        ("UPDATE {revenue} SET amount_cents = amount_cents - 1 WHERE " + ONE_CELL, {"amount_cents"}),
        ("UPDATE {revenue} SET id_checksum = id_checksum # 1 WHERE " + ONE_CELL, {"id_checksum"}),
    ],
    ids=["count", "sum", "another id with the same count and sum"],
)
def test_one_wrong_number_in_one_cell_is_found(line: AuditedLine, statement: str, wrong: set[str]) -> None:
    line.damage(statement)

    report = audited(line)
    (difference,) = report.differences
    assert difference.view == "revenue_by_merchant" and difference.key.keys() == {"merchant_id", "currency"}
    assert difference.expected is not None and difference.served is not None
    assert {name for name in difference.expected if difference.expected[name] != difference.served[name]} == wrong
    assert not report.exact


def test_a_missing_cell_is_found(line: AuditedLine) -> None:
    line.damage("DELETE FROM {revenue} WHERE " + ONE_CELL)

    (difference,) = audited(line).differences
    assert difference.served is None and difference.expected is not None


def test_a_cell_that_should_not_be_is_found(line: AuditedLine) -> None:
    line.damage("UPDATE {revenue} SET merchant_id = 'nobody' WHERE " + ONE_CELL)

    kinds = {(difference.expected is None, difference.served is None) for difference in audited(line).differences}
    assert kinds == {(True, False), (False, True)}


def test_another_event_with_the_same_fields_in_place_of_one_is_found_by_the_checksum_alone(line: AuditedLine) -> None:
    times = Counter(each.value for each in LOG)
    replaced = next(each for each in LOG if each.value and times[each.value] == 1 and isinstance(judge(each.value), Event))
    assert replaced.value is not None
    other = re.sub(rb'"transaction_id":"[^"]*"', b'"transaction_id":"another"', replaced.value)
    log = [each._replace(value=other) if each is replaced else each for each in LOG]

    report = audited(line, log=log)
    assert [difference.view for difference in report.differences] == [view.name for view in ALL_VIEWS]
    for difference in report.differences:
        assert difference.expected is not None and difference.served is not None
        assert {name for name in difference.expected if difference.expected[name] != difference.served[name]} == {"id_checksum"}
    assert report.problems == ()


def test_a_quarantined_delivery_that_is_missing_or_has_another_reason_is_found(line: AuditedLine) -> None:
    line.damage("UPDATE {line}.quarantine SET reason = 'not_utf8' WHERE reason = 'no_value'")
    line.damage("DELETE FROM {line}.quarantine WHERE reason = 'bad_kind'")

    report = audited(line)
    assert report.differences == () and not report.exact
    assert any("expected no_value, quarantine has not_utf8" in problem for problem in report.problems)
    assert any("expected bad_kind, quarantine has nothing" in problem for problem in report.problems)


def test_a_total_that_does_not_add_up_is_found(line: AuditedLine) -> None:
    line.damage("UPDATE {line}.generations SET duplicates = duplicates + 1, read = read + 1 WHERE generation = 1")

    assert any(problem.startswith("totals duplicates: expected") for problem in audited(line).problems)


def test_a_sample_compares_so_many_cells_of_each_view(line: AuditedLine) -> None:
    assert [view.cells_compared for view in audited(line, sample=50).views] == [50, 50, 50]


def test_no_line_is_said_with_what_to_do(fresh_database_url: str) -> None:
    conn = database.connect(fresh_database_url)
    with pytest.raises(UnknownLine, match="seam speed"):
        audit(conn, "other", ALL_VIEWS, lambda since, until: [])
    conn.close()
