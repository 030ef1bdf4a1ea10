"""One micro-batch becomes one epoch, against a reading of the same rows one at a time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import reduce
from operator import xor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import LogDiverged, StreamFailed
from serving.store.records import Frontier, Marker
from serving.store.vectors import OffsetVector
from speed_layer.fold_epoch import Folded, Reading, fold_epoch
from speed_layer.seen import Horizon, Seen
from tests.speed.lifted import START, Delivery, naive, table
from views.registry import ALL_VIEWS
from views.revenue_by_merchant import VIEW as REVENUE

SLACK = timedelta(seconds=60)
NOTHING_READ = Reading(OffsetVector(), {}, None, {})


def fresh_seen() -> Seen:
    return Seen(Horizon(timedelta(hours=24), 1_000_000))


def end_of(deliveries: list[Delivery]) -> OffsetVector:
    ends: dict[int, int] = {}
    for delivery in deliveries:
        ends[delivery.partition] = max(ends.get(delivery.partition, 0), delivery.position + 1)
    return OffsetVector.of(ends)


def folded(deliveries: list[Delivery], reading: Reading = NOTHING_READ, seen: Seen | None = None) -> Folded:
    result = fold_epoch(table(deliveries), end_of(deliveries), reading, seen or fresh_seen(), ALL_VIEWS, SLACK)
    assert result is not None
    return result


def remember(seen: Seen, result: Folded) -> None:
    if result.ids is not None:
        seen.add(result.ids.first, result.ids.second, log_time=result.ids.newest_log_time, now=START)


def test_an_id_delivered_twice_in_one_epoch_counts_once_where_it_was_appended_first() -> None:
    later, earlier = Delivery(0, 5, "t-1", log_second=9, cents=7), Delivery(1, 8, "t-1", log_second=4, cents=5)
    cells = folded([later, earlier]).epoch.cells[REVENUE.fingerprint].to_pylist()
    assert [(cell["transactions"], cell["amount_cents"]) for cell in cells] == [(1, 5)]


def test_deliveries_of_one_instant_are_ordered_by_partition_then_position() -> None:
    copies = [Delivery(1, 3, "t-1", 4, cents=1), Delivery(0, 9, "t-1", 4, cents=2), Delivery(0, 8, "t-1", 4, cents=3)]
    cells = folded(copies).epoch.cells[REVENUE.fingerprint].to_pylist()
    assert [cell["amount_cents"] for cell in cells] == [3]


def test_an_id_of_an_earlier_epoch_is_a_duplicate() -> None:
    seen = fresh_seen()
    first = folded([Delivery(0, 0, "t-1", 1)], seen=seen)
    remember(seen, first)
    second = folded([Delivery(0, 1, "t-2", 2), Delivery(1, 0, "t-1", 3)], first.reading, seen)
    assert {p: (c.read, c.counted, c.duplicates) for p, c in second.epoch.partitions.items()} == {0: (1, 1, 0), 1: (1, 0, 1)}
    assert second.epoch.start == first.epoch.until


def test_positions_below_the_frontier_are_skipped_even_where_their_ids_are_new() -> None:
    reading = Reading(OffsetVector.of({0: 2}), {}, None, {})
    result = folded([Delivery(0, at, f"t-{at}", at) for at in range(4)], reading)
    assert result.epoch.partitions[0].read == 2
    assert result.epoch.partitions[0].counted == 2


def test_other_bytes_at_the_last_delivery_read_are_a_diverged_log() -> None:
    reading = Reading(OffsetVector.of({0: 1}), {0: Marker(0, 123, 456)}, None, {})
    with pytest.raises(LogDiverged) as failure:
        folded([Delivery(0, 0, "t-0", 0), Delivery(0, 1, "t-1", 1)], reading)
    assert failure.value.fields["partition"] == 0
    assert failure.value.fix


def test_the_same_bytes_at_the_last_delivery_read_are_no_offence() -> None:
    first = folded([Delivery(0, 0, "t-0", 0)])
    again = folded([Delivery(0, 0, "t-0", 0), Delivery(0, 1, "t-1", 1)], first.reading)
    assert again.epoch.partitions[0].read == 1


def test_only_positions_below_the_frontier_make_no_epoch() -> None:
    reading = Reading(OffsetVector.of({0: 5}), {}, None, {})
    assert fold_epoch(table([Delivery(0, 1, "t-1", 1)]), OffsetVector.of({0: 2}), reading, fresh_seen(), ALL_VIEWS, SLACK) is None


def test_a_trailing_transaction_marker_moves_the_frontier_without_a_delivery() -> None:
    result = fold_epoch(table([]), OffsetVector.of({0: 3, 1: 1}), NOTHING_READ, fresh_seen(), ALL_VIEWS, SLACK)
    assert result is not None
    assert result.epoch.until == OffsetVector.of({0: 3, 1: 1})
    assert result.epoch.partitions == {}
    assert result.epoch.seen is None
    assert all(cells.num_rows == 0 for cells in result.epoch.cells.values())


def test_a_delivery_beyond_the_planned_end_stops_the_epoch() -> None:
    with pytest.raises(StreamFailed):
        fold_epoch(table([Delivery(0, 7, "t-1", 1)]), OffsetVector.of({0: 7}), NOTHING_READ, fresh_seen(), ALL_VIEWS, SLACK)


def test_a_quarantined_delivery_is_read_and_named_and_never_counted() -> None:
    epoch = folded([Delivery(0, 0, None, 5), Delivery(0, 1, "t-1", 6), Delivery(0, 2, None, 7)]).epoch
    assert [(row.partition, row.offset, row.reason, row.log_time) for row in epoch.quarantine] == [
        (0, 0, "not_json", START + timedelta(seconds=5)),
        (0, 2, "not_json", START + timedelta(seconds=7)),
    ]
    counts = epoch.partitions[0]
    assert (counts.read, counts.counted, counts.duplicates, counts.quarantined) == (3, 1, 0, 2)
    assert epoch.markers[0].offset == 2
    assert epoch.markers[0].id_hash is None


def test_the_watermark_is_the_slowest_partition_and_never_ahead_of_the_log() -> None:
    rows = [Delivery(0, 0, "t-1", log_second=500, event_second=400), Delivery(1, 0, "t-2", log_second=300, event_second=9_000)]
    assert folded(rows).epoch.watermark == START + timedelta(seconds=300) - SLACK


def test_a_partition_read_for_the_first_time_does_not_move_the_watermark_back() -> None:
    first = folded([Delivery(0, 0, "t-1", 500, 500)])
    second = folded([Delivery(1, 0, "t-2", 510, 100)], first.reading)
    assert second.epoch.watermark == first.epoch.watermark


def test_after_a_start_the_watermark_goes_on_from_the_stored_one() -> None:
    mark = START + timedelta(seconds=440)
    frontier = Frontier(OffsetVector.of({0: 1, 1: 1}), {0: Marker(0, 1, 1), 1: Marker(0, 1, 1)}, 1, 1, mark)
    result = folded([Delivery(0, 1, "t-1", 900, 900)], Reading.at(frontier, SLACK))
    assert result.epoch.watermark == mark  # partition 1 may still be at the mark
    both = folded([Delivery(1, 1, "t-2", 800, 800)], result.reading)
    assert both.epoch.watermark == START + timedelta(seconds=800) - SLACK


def test_late_means_behind_the_watermark_before_the_epoch() -> None:
    seen = fresh_seen()
    first = folded([Delivery(0, 0, "t-1", 500, 500)], seen=seen)
    remember(seen, first)
    rows = [Delivery(0, 1, "t-2", 501, 439), Delivery(0, 2, "t-3", 502, 440), Delivery(0, 3, "t-1", 503, 0)]
    assert folded(rows, first.reading, seen).epoch.late == 1


names = st.one_of(st.none(), st.sampled_from([f"t-{number}" for number in range(12)]))


@st.composite
def logs(draw: st.DrawFn) -> list[Delivery]:
    """A log of up to three partitions, with holes, re-deliveries everywhere and poison."""
    log = []
    for partition in range(draw(st.integers(1, 3))):
        position, second = 0, 0
        for name in draw(st.lists(names, max_size=12)):
            position += draw(st.integers(1, 3))
            second += draw(st.integers(0, 2))
            log.append(
                Delivery(
                    partition, position - 1, name, second, draw(st.integers(0, 200)), draw(st.integers(-9, 9)), draw(st.sampled_from("ab"))
                )
            )
    return log


@settings(max_examples=150, deadline=None)
@given(log=logs(), steps=st.lists(st.integers(0, 40), max_size=4), rewind=st.integers(0, 5))
def test_any_division_into_epochs_counts_what_a_reader_of_single_rows_counts(log: list[Delivery], steps: list[int], rewind: int) -> None:
    reading, seen, counted_before = NOTHING_READ, fresh_seen(), set[str]()
    totals = Counter[tuple[str, int]]()
    checksum = 0
    for step in [*steps, 40]:
        bounds = {p: reading.until[p] + step for p in range(3)}
        new = [d for d in log if reading.until[d.partition] <= d.position < bounds[d.partition]]
        replayed = [d for d in log if reading.until[d.partition] - rewind <= d.position < reading.until[d.partition]]
        result = fold_epoch(table(new + replayed), OffsetVector.of(bounds), reading, seen, ALL_VIEWS, SLACK)
        if result is None:
            assert step == 0
            continue
        expected = naive(new, counted_before)
        for partition, counts in result.epoch.partitions.items():
            assert counts.read == expected.read[partition] == counts.counted + counts.duplicates + counts.quarantined
            assert counts.counted == expected.counted[partition]
            assert counts.quarantined == expected.quarantined[partition]
        assert set(result.epoch.partitions) == set(expected.read)
        assert result.epoch.id_checksum == reduce(xor, (d.id_hash for d in expected.winners), 0)
        assert (len(result.epoch.seen.packed) if result.epoch.seen else 0) == 16 * len(expected.winners)
        for cell in result.epoch.cells[REVENUE.fingerprint].to_pylist():
            totals[cell["merchant_id"], cell["window_start"]] += cell["amount_cents"]
        for winner in expected.winners:
            seconds = int(winner.event_time.timestamp())
            totals[winner.merchant, seconds - seconds % 60] -= winner.cents
        checksum ^= result.epoch.id_checksum
        counted_before |= {d.name for d in expected.winners if d.name}
        remember(seen, result)
        reading = result.reading
    assert not any(totals.values())
    assert counted_before == {d.name for d in log if d.name and d.position < reading.until[d.partition]}
