"""Fold lifted events into cells on the driver, with numpy and Arrow; the twin of `views.lift.fold_frame` without Spark."""

from __future__ import annotations

from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from views.measures import Merge, PartialColumn
from views.view import View

Integers = npt.NDArray[np.int64]

UFUNCS = {Merge.SUM: np.add, Merge.MIN: np.minimum, Merge.MAX: np.maximum, Merge.XOR: np.bitwise_xor}


def fold(view: View, lifted: pa.Table) -> pa.Table:
    """The cells of `lifted`, valid events each given once, ordered by key and window.

    Columns: the key fields, `window_start` in seconds, then the view's columns as int64: exact for up to five million
    events, as an amount stays within 10^12.
    """
    window = _integers(lifted, f"window_{view.window.seconds}")
    codes = [*(_text_codes(lifted.column(field)) for field in view.key), _integer_codes(window)]
    order, starts = _groups(codes)
    firsts = pa.array(order[starts])
    columns = {field: lifted.column(field).cast(pa.string()).take(firsts) for field in view.key}
    columns["window_start"] = pa.array(window[order[starts]])
    for column in view.columns:
        columns[column.name] = pa.array(_merged(column, lifted, order, starts))
    return pa.table(columns)


def _groups(codes: list[tuple[Integers, int]]) -> tuple[Integers, Integers]:
    """Rows ordered by their codes, and where in that order each group begins."""
    rows = len(codes[0][0])
    if rows == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    combined, _ = reduce(_combine, codes)
    order = np.argsort(combined).astype(np.int64, copy=False)
    ordered = combined[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return order, starts.astype(np.int64, copy=False)


def _combine(left: tuple[Integers, int], right: tuple[Integers, int]) -> tuple[Integers, int]:
    """Two codes as one of the same order; made dense again where the product would leave 62 bits."""
    (left_codes, left_count), (right_codes, right_count) = left, right
    if left_count * right_count >= 1 << 62:
        distinct, left_codes = np.unique(left_codes, return_inverse=True)
        left_count = len(distinct)
    return left_codes * right_count + right_codes, left_count * right_count


def _text_codes(column: pa.ChunkedArray) -> tuple[Integers, int]:
    """Codes in the order of the UTF-8 bytes, so that cells come in one order however the rows were split."""
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    by_bytes = encoded.dictionary.cast(pa.binary())
    rank = np.empty(len(by_bytes), np.int64)
    rank[pc.array_sort_indices(by_bytes).to_numpy()] = np.arange(len(by_bytes))
    return rank[encoded.indices.to_numpy()], max(len(by_bytes), 1)


def _integer_codes(values: Integers) -> tuple[Integers, int]:
    if not len(values):
        return values, 1
    least = values.min()
    return values - least, int(values.max() - least) + 1


def _integers(lifted: pa.Table, name: str) -> Integers:
    values: Integers = lifted.column(name).to_numpy()
    return values.astype(np.int64, copy=False)


def _merged(column: PartialColumn, lifted: pa.Table, order: Integers, starts: Integers) -> Integers:
    if not len(order):
        return np.empty(0, np.int64)
    if column.field is None:
        return np.diff(starts, append=len(order))
    return UFUNCS[column.merge].reduceat(_integers(lifted, column.field)[order], starts)
