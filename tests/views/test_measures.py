"""The laws that every stored partial obeys."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from views.fold import UFUNCS
from views.measures import Count, Max, Measure, Merge, Min, Sum

values = st.integers(-(10**12), 10**12)
MEASURES = (Count(), Sum("amount_cents"), Min("amount_cents"), Max("amount_cents"))
PLAIN = {Merge.SUM: lambda a, b: a + b, Merge.MIN: min, Merge.MAX: max, Merge.XOR: lambda a, b: a ^ b}


@pytest.mark.parametrize("merge", Merge)
@given(a=values, b=values, c=values)
def test_merges_are_associative_and_commutative(merge: Merge, a: int, b: int, c: int) -> None:
    def combine(one: int, other: int) -> int:
        return int(UFUNCS[merge](np.int64(one), np.int64(other)))

    assert combine(combine(a, b), c) == combine(a, combine(b, c))
    assert combine(a, b) == combine(b, a) == PLAIN[merge](a, b)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: type(measure).__name__)
@given(amounts=st.lists(values, min_size=1, max_size=20))
def test_a_measure_presents_what_its_name_says(measure: Measure, amounts: list[int]) -> None:
    said = {"Count": len, "Sum": sum, "Min": min, "Max": max}[type(measure).__name__](amounts)
    (column,) = measure.columns("shown")
    lifted = [1 if column.field is None else amount for amount in amounts]
    assert measure.present([reduce(PLAIN[column.merge], lifted)]) == said


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: type(measure).__name__)
def test_a_measure_stores_columns_of_its_own_name(measure: Measure) -> None:
    assert [column.name for column in measure.columns("shown")] == ["shown"]


def test_only_sums_of_a_field_are_wide() -> None:
    assert [column.wide for measure in MEASURES for column in measure.columns("m")] == [False, True, False, False]
