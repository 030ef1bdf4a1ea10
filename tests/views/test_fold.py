"""The driver's fold beside the naive one, over any rows, any split and any chunking."""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.views.naive import as_cells, naive_fold, naive_merge
from views.fold import fold
from views.measures import Count, Max, Min, Sum
from views.registry import ALL_VIEWS
from views.view import View, WorkedExample
from views.windows import Tumbling, minutes

NO_EXAMPLE = WorkedExample((), ())
EVERY_MERGE = View(
    name="every_merge",
    key=("kind", "currency", "merchant_id", "account_id"),
    window=minutes(5),
    measures={"n": Count(), "total": Sum("amount_cents"), "least": Min("amount_cents"), "most": Max("amount_cents")},
    worked_example=NO_EXAMPLE,
)
VIEWS = (*ALL_VIEWS, EVERY_MERGE)
LIFTED = pa.schema(
    [
        ("id_hash", pa.int64()),
        *((name, pa.string()) for name in ("account_id", "merchant_id", "currency", "kind")),
        ("amount_cents", pa.int64()),
        *((f"window_{seconds}", pa.int64()) for seconds in (60, 300, 86_400)),
    ]
)
KEYS = ("a", "b", "", "é", "\U0001f600", "\uffff", "Z")


def lifted_rows(seconds: int, id_hash: int, amount_cents: int, key: tuple[str, str, str, str]) -> dict[str, Any]:
    windows = {f"window_{length}": seconds - seconds % length for length in (60, 300, 86_400)}
    fields = dict(zip(("account_id", "merchant_id", "currency", "kind"), key, strict=True))
    return {"id_hash": id_hash, "amount_cents": amount_cents, **fields, **windows}


int64 = st.integers(-(2**63), 2**63 - 1)
rows = st.lists(
    st.builds(
        lifted_rows,
        st.one_of(st.integers(946_684_800, 946_684_800 + 600), st.integers(946_684_800, 4_102_444_799)),
        int64,
        st.integers(-(10**12), 10**12),
        st.tuples(*[st.sampled_from(KEYS)] * 4),
    ),
    max_size=60,
)


def table(events: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(events, schema=LIFTED)


@pytest.mark.parametrize("view", VIEWS, ids=attrgetter("name"))
@given(events=rows)
@settings(deadline=None)
def test_the_fold_is_the_naive_fold_in_one_order(view: View, events: list[dict[str, Any]]) -> None:
    cells = fold(view, table(events)).to_pylist()
    found = as_cells(view, cells)
    assert found == naive_fold(view, events)
    assert len(found) == len(cells)
    assert list(found) == sorted(found, key=lambda place: tuple(part.encode() if isinstance(part, str) else part for part in place))


@pytest.mark.parametrize("view", VIEWS, ids=attrgetter("name"))
@given(events=rows, order=st.randoms(use_true_random=False), cuts=st.lists(st.integers(0, 60), max_size=4))
@settings(deadline=None)
def test_folding_any_split_in_any_order_and_merging_is_one_fold(
    view: View, events: list[dict[str, Any]], order: Random, cuts: list[int]
) -> None:
    whole = as_cells(view, fold(view, table(events)).to_pylist())
    shuffled = order.sample(events, len(events))
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    merged: dict[Any, dict[str, int]] = {}
    for start, end in pairwise(edges):
        for place, partials in as_cells(view, fold(view, table(shuffled[start:end])).to_pylist()).items():
            merged[place] = naive_merge(view, merged[place], partials) if place in merged else partials
    assert merged == whole


@pytest.mark.parametrize("view", VIEWS, ids=attrgetter("name"))
@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_chunks_and_text_types_make_no_difference(view: View, text: pa.DataType) -> None:
    random = Random(7)
    events = [
        lifted_rows(random.randrange(10**9, 10**9 + 4_000), random.getrandbits(63), random.randrange(100), tuple(random.choices(KEYS, k=4)))
        for _ in range(300)
    ]
    fields = [field.with_type(text) if field.type == pa.string() else field for field in LIFTED]
    plain = table(events)
    parts = [plain.slice(0, 0), plain.slice(0, 100), plain.slice(100, 1), plain.slice(101, 0), plain.slice(101)]
    chunked = pa.concat_tables([part.cast(pa.schema(fields)) for part in parts])
    assert fold(view, chunked).equals(fold(view, plain))


@pytest.mark.parametrize("view", VIEWS, ids=attrgetter("name"))
def test_the_columns_are_the_same_for_no_rows_and_for_some(view: View) -> None:
    some = fold(view, table([lifted_rows(10**9, 1, 2, ("a", "b", "EUR", "purchase"))]))
    expected = [
        *((field, pa.string()) for field in view.key),
        ("window_start", pa.int64()),
        *((column.name, pa.int64()) for column in view.columns),
    ]
    for empty in (table([]), table([]).slice(0), pa.table({name: pa.chunked_array([], LIFTED.field(name).type) for name in LIFTED.names})):
        assert fold(view, empty).schema == some.schema == pa.schema(expected)
        assert fold(view, empty).num_rows == 0


def test_wide_sums_of_the_largest_epoch_stay_exact() -> None:
    count = 2_000_000
    columns = {
        "id_hash": pa.array([5] * count),
        "merchant_id": pa.array(["m"] * count).dictionary_encode(),
        "currency": pa.array(["EUR"] * count).dictionary_encode(),
        "amount_cents": pa.array([-(10**12)] * count),
        "window_60": pa.array([0] * count),
    }
    view = next(view for view in ALL_VIEWS if view.name == "revenue_by_merchant")
    assert fold(view, pa.table(columns)).to_pylist() == [
        {
            "merchant_id": "m",
            "currency": "EUR",
            "window_start": 0,
            "transactions": count,
            "amount_cents": -(10**12) * count,
            "events": count,
            "id_checksum": 0,
        }
    ]


def test_many_distinct_keys_and_windows_do_not_collide() -> None:
    random = Random(3)
    view = View("wide", ("account_id", "merchant_id", "currency", "kind"), Tumbling(minutes(1).length), {"n": Count()}, NO_EXAMPLE)
    events = [
        lifted_rows(random.randrange(946_684_800, 4_102_444_800), i, 1, tuple(str(random.getrandbits(40)) for _ in range(4)))
        for i in range(30_000)
    ]
    found = fold(view, table(events))
    assert found.num_rows == 30_000 == sum(found["n"].to_pylist())
    assert as_cells(view, found.to_pylist()) == naive_fold(view, events)
