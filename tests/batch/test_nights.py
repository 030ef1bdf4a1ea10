"""Nights on real Kafka, Delta and PostgreSQL, each compared cell by cell with a naive recount of the log."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.batch.hand_fed_line import DAY_ONE, HandFedLine, day_of_events

pytestmark = pytest.mark.stack

DAY_TWO = DAY_ONE + timedelta(days=1)


def test_two_nights_with_late_and_redelivered_events_across_the_cut_are_exact(line: HandFedLine) -> None:
    first = day_of_events(0, 300, DAY_ONE)
    line.send(first)
    line.speed()
    night = line.night()
    assert night.published and night.manifest == 1
    assert night.deliveries == len(first) == night.counted + night.duplicates + night.quarantined
    line.assert_exact()
    again = [value for _, value in first[:40] if value]
    line.send(day_of_events(300, 300, DAY_TWO, late_for=DAY_ONE, again=again, seed=2))
    line.speed()
    line.assert_exact()
    night = line.night()
    assert night.manifest == 2 and night.duplicates >= 30
    assert [str(day) for day in night.days_touched] == ["2026-03-01", "2026-03-02"]
    line.assert_exact()
    line.assert_exact(as_of=1)
    line.assert_exact(as_of=2)
