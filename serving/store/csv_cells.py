"""Cells as CSV for COPY, written by Arrow."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from serving.store.cells import cell_columns
from views.view import View

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 50_000


def csv_of(cells: pa.Table, view: View, segment: int) -> Iterator[bytes]:
    """The rows in the order of the batch table's columns, in pieces. Texts are quoted, so no text looks like a null."""
    import pyarrow as pa
    from pyarrow import csv

    columns = []
    for name in cell_columns(view):
        column = cells[name]
        columns.append(column.cast(pa.timestamp("s", tz="UTC")) if name == "window_start" else column)
    table = pa.table([pa.repeat(segment, cells.num_rows), *columns], names=["segment", *cell_columns(view)])
    for piece in table.to_batches(max_chunksize=_ROWS):
        written = io.BytesIO()
        csv.write_csv(piece, written, csv.WriteOptions(include_header=False, quoting_style="needed"))
        yield written.getvalue()
