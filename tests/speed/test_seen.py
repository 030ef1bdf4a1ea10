"""The seen ids against a plain Python set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.store.records import SeenIds
from speed_layer import seen as seen_module
from speed_layer.seen import Horizon, Seen, pack

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = Horizon(timedelta(hours=24), 50_000_000)

Id = tuple[int, int]


def columns(ids: list[Id]) -> tuple[np.ndarray, np.ndarray]:
    ordered = np.array(sorted(ids), dtype=np.uint64).reshape(-1, 2)
    return ordered[:, 0].copy(), ordered[:, 1].copy()


def add(seen: Seen, ids: list[Id], at: datetime = NOON) -> None:
    seen.add(*columns(ids), log_time=at, now=at)


def known(seen: Seen, ids: list[Id]) -> set[Id]:
    first, second = columns(ids)
    found = seen.find(first, second)
    return {(int(a), int(b)) for a, b in zip(first[found], second[found], strict=True)}


# Few distinct hashes, so that two ids often share one; the extremes, so that nothing is taken for signed.
few = st.sampled_from([0, 1, 7, 2**63 - 1, 2**63, 2**64 - 1])
ids = st.tuples(few | st.integers(0, 2**64 - 1), few | st.integers(0, 2**64 - 1))


@settings(max_examples=200, deadline=None)
@given(rounds=st.lists(st.sets(ids, max_size=30), max_size=12), asked=st.sets(ids, max_size=30))
def test_it_answers_like_a_set(rounds: list[set[Id]], asked: set[Id]) -> None:
    seen, oracle = Seen(DAY), set[Id]()
    for number, new in enumerate(rounds):
        fresh = sorted(new - oracle)
        assert known(seen, sorted(new)) == new & oracle
        add(seen, fresh, NOON + timedelta(minutes=50 * number))
        oracle |= new
    everything = sorted(oracle | asked)
    assert known(seen, everything) == oracle
    assert len(seen) == len(oracle)


@settings(max_examples=50, deadline=None)
@given(rounds=st.lists(st.sets(ids, min_size=1, max_size=30), min_size=1, max_size=6), asked=st.sets(ids, max_size=30))
def test_what_was_packed_is_known_again_after_a_load(rounds: list[set[Id]], asked: set[Id]) -> None:
    parts = [SeenIds(pack(*columns(sorted(new))), NOON - timedelta(hours=2 * age)) for age, new in enumerate(rounds)]
    seen = Seen(DAY)
    seen.load(parts, now=NOON)
    oracle = set().union(*rounds)
    assert known(seen, sorted(oracle | asked)) == oracle


def test_a_large_set_stays_exact_while_runs_merge_and_the_bitmap_grows() -> None:
    random = np.random.default_rng(20260301)
    seen, every = Seen(DAY), []
    for number in range(60):
        new = random.integers(0, 2**64, size=(20_000, 2), dtype=np.uint64)
        new = new[np.argsort(new[:, 0])]
        first, second = new[:, 0].copy(), new[:, 1].copy()
        assert not seen.find(first, second).any()
        seen.add(first, second, log_time=NOON, now=NOON + timedelta(minutes=number))
        every.append(new)
    for new in every:
        assert seen.find(new[:, 0].copy(), new[:, 1].copy()).all()
        assert not seen.find(new[:, 0].copy(), new[:, 1] + np.uint64(1)).any()
    assert len(seen) == 60 * 20_000


def test_an_id_is_forgotten_only_when_old_by_log_time_and_by_commit_time() -> None:
    old, hour = NOON - timedelta(hours=30), timedelta(hours=1)
    seen = Seen(DAY)
    seen.add(*columns([(1, 1)]), log_time=old, now=NOON - 25 * hour)  # old by both
    seen.add(*columns([(2, 2)]), log_time=old, now=NOON - 20 * hour)  # read from a backlog: committed lately
    seen.add(*columns([(3, 3)]), log_time=NOON, now=NOON)
    assert seen.expire(now=NOON, log_position=NOON) == 1
    assert known(seen, [(1, 1), (2, 2), (3, 3)]) == {(2, 2), (3, 3)}


def test_nothing_is_forgotten_while_the_log_is_read_far_behind_the_clock() -> None:
    long_ago = NOON - timedelta(days=3)
    seen = Seen(DAY)
    seen.add(*columns([(1, 1)]), log_time=long_ago, now=long_ago)
    seen.add(*columns([(2, 2)]), log_time=long_ago, now=NOON)
    assert seen.expire(now=NOON, log_position=long_ago + timedelta(minutes=1)) == 0
    assert seen.expire(now=NOON, log_position=None) == 0
    assert known(seen, [(1, 1), (2, 2)]) == {(1, 1), (2, 2)}


def test_the_most_ids_are_kept_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "_MOST_IDS_PER_BUCKET", 10)
    seen = Seen(Horizon(timedelta(hours=24), 25))
    for start in range(0, 100, 10):
        add(seen, [(number, number) for number in range(start, start + 10)])
        seen.expire(now=NOON, log_position=NOON)
        assert len(seen) <= 34  # whole buckets go, never below the limit
    assert known(seen, [(number, number) for number in range(100)]) == {(number, number) for number in range(70, 100)}


def test_forgotten_ids_leave_no_trace_after_the_bitmap_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "_LEAST_BITS", 64)
    seen = Seen(Horizon(timedelta(hours=1), 1_000))
    for hour in range(50):
        now = NOON + timedelta(hours=hour)
        assert known(seen, [(hour, hour)]) == set()
        add(seen, [(hour, hour), (2**64 - 1 - hour, hour)], now)
        seen.expire(now=now, log_position=now)
    assert len(seen) <= 6
