"""Arrow columns as PostgreSQL array parameters, encoded in one vectorised pass each.

A Python list of 40,000 values costs more to pass than the database needs to store it; these do not.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    import pyarrow as pa

_SECONDS_1970_TO_2000 = 946_684_800
_INT8, _TEXT, _TIMESTAMPTZ = 20, 25, 1184


@dataclass(frozen=True, slots=True)
class Int8Array:
    payload: bytes


@dataclass(frozen=True, slots=True)
class TextArray:
    payload: bytes


@dataclass(frozen=True, slots=True)
class InstantArray:
    payload: bytes


def int8_array(column: pa.ChunkedArray) -> Int8Array:
    """An int64 column without nulls as int8[]."""
    return Int8Array(_fixed(_INT8, _whole(column).to_numpy()))


def instant_array(seconds: pa.ChunkedArray) -> InstantArray:
    """An int64 column of seconds since 1970 as timestamptz[]."""
    microseconds = (_whole(seconds).to_numpy() - _SECONDS_1970_TO_2000) * 1_000_000
    return InstantArray(_fixed(_TIMESTAMPTZ, microseconds))


def text_array(column: pa.ChunkedArray) -> TextArray:
    """A string column without nulls as text[]: 4 bytes of length, then the UTF-8 bytes, one after the other."""
    import pyarrow as pa

    array = _whole(column.cast(pa.large_string()))
    _, ends_buffer, text_buffer = array.buffers()
    ends = np.frombuffer(ends_buffer, np.int64)[array.offset : array.offset + len(array) + 1] if len(array) else np.zeros(1, np.int64)
    text = np.frombuffer(text_buffer, np.uint8)[ends[0] : ends[-1]] if text_buffer is not None else np.empty(0, np.uint8)
    lengths = np.diff(ends)
    encoded = np.empty(len(text) + 4 * len(lengths), np.uint8)
    heads = (ends[:-1] - ends[0] + 4 * np.arange(len(lengths)))[:, None] + np.arange(4)
    is_text = np.ones(len(encoded), bool)
    is_text[heads.ravel()] = False
    encoded[heads] = lengths.astype(">i4").view(np.uint8).reshape(-1, 4)
    encoded[is_text] = text
    return TextArray(_header(_TEXT, len(lengths)) + encoded.tobytes())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.null_count:
        raise ValueError("a cell has no null values")
    array = column.combine_chunks()
    return array.chunk(0) if hasattr(array, "num_chunks") else array


def _fixed(element: int, values: np.ndarray[Any, Any]) -> bytes:
    encoded = np.empty(len(values), dtype=[("length", ">i4"), ("value", ">i8")])
    encoded["length"] = 8
    encoded["value"] = values
    return _header(element, len(values)) + encoded.tobytes()


def _header(element: int, count: int) -> bytes:
    """One dimension, no nulls, beginning at 1. An empty array has no dimension."""
    return struct.pack(">iiiii", 1, 0, element, count, 1) if count else struct.pack(">iii", 0, 0, element)


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        payload: bytes = obj.payload
        return payload


class _Int8Dumper(_ArrayDumper):
    oid = 1016


class _TextDumper(_ArrayDumper):
    oid = 1009


class _InstantDumper(_ArrayDumper):
    oid = 1185


def register_arrays(conn: psycopg.Connection[Any]) -> None:
    """Teaches a connection to pass these arrays."""
    conn.adapters.register_dumper(Int8Array, _Int8Dumper)
    conn.adapters.register_dumper(TextArray, _TextDumper)
    conn.adapters.register_dumper(InstantArray, _InstantDumper)
