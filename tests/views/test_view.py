"""Declarations: what may be declared, and what names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import pytest

from views.event import EVENT_FIELDS, RULES_FINGERPRINT, Reason, field_reason
from views.measures import Count, Max, Min, Sum
from views.registry import ALL_VIEWS, view_named
from views.view import View, WorkedExample
from views.windows import Tumbling, days, minutes

PLAIN: dict[str, Any] = {
    "name": "plain",
    "key": ("merchant_id",),
    "window": minutes(1),
    "measures": {"transactions": Count()},
    "worked_example": WorkedExample((), ()),
}

REFUSED: tuple[Mapping[str, Any], ...] = (
    {"name": ""},
    {"name": "Capital"},
    {"name": "1st"},
    {"name": "a-b"},
    {"name": "x" * 41},
    {"key": ("no_such_field",)},
    {"key": ("transaction_id",)},
    {"key": ("amount_cents",)},
    {"key": ("event_time",)},
    {"measures": {"total": Sum("merchant_id")}},
    {"measures": {"total": Sum("no_such_field")}},
    {"measures": {"merchant_id": Count()}},
    {"measures": {"No": Count()}},
    {"measures": {"events": Count()}},
    {"measures": {"id_checksum": Count()}},
    {"measures": {"window_start": Count()}},
    {"measures": {"final": Count()}},
    {"measures": {"limit": Count()}},
)

CHANGES: tuple[Mapping[str, Any], ...] = (
    {"key": ()},
    {"key": ("account_id",)},
    {"key": ("merchant_id", "currency")},
    {"window": minutes(2)},
    {"window": days(1)},
    {"measures": {"other": Count()}},
    {"measures": {"transactions": Sum("amount_cents")}},
    {"measures": {"transactions": Min("amount_cents")}},
    {"measures": {"transactions": Max("amount_cents")}},
    {"measures": {"transactions": Count(), "more": Count()}},
)


@pytest.mark.parametrize("change", REFUSED, ids=str)
def test_a_wrong_declaration_is_refused(change: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError):
        View(**{**PLAIN, **change})


def test_a_key_field_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        View(**{**PLAIN, "key": ("merchant_id", "merchant_id")})


@pytest.mark.parametrize(
    "length", [timedelta(0), timedelta(seconds=-60), timedelta(seconds=7), timedelta(milliseconds=500), timedelta(days=2)]
)
def test_a_window_that_does_not_divide_a_day_is_refused(length: timedelta) -> None:
    with pytest.raises(ValueError, match="divides a day"):
        Tumbling(length)


@pytest.mark.parametrize("second", [0, 59.999999, 60, 86_399.999999])
def test_a_window_is_half_open(second: float) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=second)
    start = minutes(1).start(at)
    assert start <= at < start + timedelta(minutes=1)
    assert start.second == start.microsecond == 0
    assert days(1).start(at) == datetime(2026, 3, 1, tzinfo=UTC)


def test_another_logic_is_another_fingerprint_and_another_name_or_example_is_not() -> None:
    plain = View(**PLAIN)
    changed = [View(**{**PLAIN, **change}).fingerprint for change in CHANGES]
    assert len({plain.fingerprint, *changed}) == len(CHANGES) + 1
    assert replace(plain, name="renamed", worked_example=WorkedExample(({"a": 1},), ())).fingerprint == plain.fingerprint


def test_the_event_rules_are_part_of_every_fingerprint() -> None:
    assert RULES_FINGERPRINT == "91935821f1ac"


@pytest.mark.parametrize("view", ALL_VIEWS, ids=attrgetter("name"))
def test_a_released_view_keeps_its_fingerprint(view: View) -> None:
    """A changed value here means that stored rows of the view are left behind: intended only with changed logic."""
    assert (
        view.fingerprint
        == {
            "system_usage": "fcf24c872af6",
            "revenue_by_merchant": "cc38972d3798",
            "account_activity": "02d18c1c90dc",
        }[view.name]
    )


def test_views_have_distinct_names_and_are_found_by_them() -> None:
    assert len({view.name for view in ALL_VIEWS}) == len(ALL_VIEWS)
    assert [view_named(view.name) for view in ALL_VIEWS] == list(ALL_VIEWS)
    assert view_named("no_such_view") is None


@pytest.mark.parametrize("view", ALL_VIEWS, ids=attrgetter("name"))
def test_every_cell_carries_its_events_and_their_checksum(view: View) -> None:
    assert [column.name for column in view.columns][-2:] == ["events", "id_checksum"]


def test_every_field_has_its_reason_in_the_order_of_the_fields() -> None:
    assert list(Reason)[-len(EVENT_FIELDS) :] == [field_reason(field) for field in EVENT_FIELDS]
