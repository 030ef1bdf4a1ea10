"""From deliveries to cells: both folds give what each view's worked example says, and the naive fold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.views.naive import as_cells, naive_fold
from tests.views.test_fold import EVERY_MERGE, LIFTED, VIEWS, lifted_rows, table
from tests.views.texts import GOOD, LOG_TIME, deliveries, event
from views.fold import fold
from views.registry import ALL_VIEWS
from views.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("generated_code")]


def lifted(spark: SparkSession, values: Sequence[bytes | None], views: Sequence[View] = ALL_VIEWS) -> DataFrame:
    from views.lift import lift

    return lift(spark.createDataFrame(deliveries(list(values))), views)


def presented(view: View, cells: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    rows = []
    for cell in cells:
        window = {"window_start": instant(cell["window_start"]), "window_end": instant(cell["window_start"] + view.window.seconds)}
        rows.append(
            {**{field: cell[field] for field in view.key}, **window, **view.present({c.name: int(cell[c.name]) for c in view.columns})}
        )
    return sorted(rows, key=lambda row: [row[name] for name in (*view.key, "window_start")])


def instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("view", ALL_VIEWS, ids=attrgetter("name"))
def test_both_folds_give_the_worked_example(spark: SparkSession, view: View) -> None:
    from views.lift import fold_frame

    frame = lifted(spark, [json.dumps(one).encode() for one in view.worked_example.events], [view]).dropDuplicates(["id_hash", "id_hash2"])
    expected = [dict(row) for row in view.worked_example.rows]
    assert presented(view, fold(view, frame.toArrow()).to_pylist()) == expected
    assert presented(view, [row.asDict() for row in fold_frame(view, frame).collect()]) == expected


def test_the_lifted_frame_has_its_columns_whatever_is_in_it(spark: SparkSession) -> None:
    from views.lift import lift

    frame = lift(spark.createDataFrame(deliveries([event()])), ALL_VIEWS, with_fields=["transaction_id", "event_time"])
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("partition", "int"),
        ("offset", "bigint"),
        ("log_time", "timestamp"),
        ("value_hash", "bigint"),
        ("reason", "string"),
        ("masked", "string"),
        ("id_hash", "bigint"),
        ("id_hash2", "bigint"),
        ("event_time", "timestamp"),
        ("window_60", "bigint"),
        ("window_86400", "bigint"),
        ("account_id", "string"),
        ("amount_cents", "bigint"),
        ("currency", "string"),
        ("merchant_id", "string"),
        ("transaction_id", "string"),
    ]
    (row,) = frame.toArrow().to_pylist()
    assert (row["partition"], row["offset"], row["log_time"], row["transaction_id"]) == (0, 0, LOG_TIME, GOOD["transaction_id"])


def test_lifting_takes_no_shuffle_and_reads_each_text_once(spark: SparkSession) -> None:
    plan = lifted(spark, [event()])._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan
    assert sum("from_json" in step for step in plan.splitlines()) == 1


def test_a_filter_on_the_reason_does_not_read_the_text_again(spark: SparkSession) -> None:
    plan = lifted(spark, [event()]).where("reason is null")._jdf.queryExecution().executedPlan().toString()
    assert sum("from_json" in step for step in plan.splitlines()) == 1


@pytest.mark.parametrize("view", VIEWS, ids=attrgetter("name"))
def test_the_spark_fold_is_the_naive_fold(spark: SparkSession, view: View) -> None:
    from views.lift import fold_frame

    random = Random(11)
    events = [
        lifted_rows(random.randrange(10**9, 10**9 + 200_000), random.getrandbits(64) - 2**63, random.randrange(-(10**12), 10**12), key)
        for key in (tuple(random.choices(("a", "b", "é", "\U0001f600"), k=4)) for _ in range(400))
    ]
    rows = [row.asDict() for row in fold_frame(view, spark.createDataFrame(table(events))).collect()]
    assert as_cells(view, rows) == naive_fold(view, events) == as_cells(view, fold(view, table(events)).to_pylist())
    assert {row["day"] for row in rows} <= {date(2001, 9, day) for day in (9, 10, 11)}
    assert all(row["day"] == datetime.fromtimestamp(row["window_start"], UTC).date() for row in rows)


def test_spark_sums_are_exact_beyond_64_bits(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from views.lift import fold_frame

    most = {name: [value] for name, value in lifted_rows(10**9, 1, 2**63 - 1, ("a", "m", "EUR", "purchase")).items()}
    frame = spark.createDataFrame(pa.table(most, schema=LIFTED)).withColumn("again", F.explode(F.sequence(F.lit(1), F.lit(1000))))
    (row,) = fold_frame(EVERY_MERGE, frame).collect()
    assert (row["total"], row["n"], row["id_checksum"]) == (1000 * (2**63 - 1), 1000, 0)
    assert dict(fold_frame(EVERY_MERGE, frame).dtypes)["total"] == "decimal(38,0)"
