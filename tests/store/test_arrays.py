"""Arrow columns arrive in PostgreSQL as they are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.store.arrays import instant_array, int8_array, text_array
from serving.store.database import Connection, connect

texts = st.lists(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20), max_size=30)
integers = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=30)


@pytest.fixture(scope="module")
def server(database_url: str) -> Connection:
    with connect(database_url) as conn:
        yield conn


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=texts, cut=st.integers(0, 5), large=st.booleans())
def test_texts_arrive_as_they_are(server: Connection, values: list[str], cut: int, large: bool) -> None:
    kind = pa.large_string() if large else pa.string()
    column = pa.chunked_array([pa.array(values[:cut], kind), pa.array(["x", *values[cut:]], kind).slice(1)], kind)
    assert server.execute("SELECT %s::text[]", (text_array(column),)).fetchone() == (values,)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=integers)
def test_integers_arrive_as_they_are(server: Connection, values: list[int]) -> None:
    column = pa.chunked_array([pa.array(values, pa.int64())])
    assert server.execute("SELECT %s::int8[]", (int8_array(column),)).fetchone() == (values,)


def test_instants_arrive_as_they_are(server: Connection) -> None:
    seconds = [0, 946_684_800, 1_772_323_200, 4_102_444_799]
    found = server.execute("SELECT %s::timestamptz[]", (instant_array(pa.chunked_array([pa.array(seconds, pa.int64())])),)).fetchone()
    assert found is not None and [int(instant.timestamp()) for instant in found[0]] == seconds


def test_a_null_is_refused() -> None:
    with pytest.raises(ValueError, match="null"):
        int8_array(pa.chunked_array([pa.array([1, None], pa.int64())]))
