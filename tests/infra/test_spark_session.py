from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.spark import spark_options
from tests.conftest import Kafka

pytestmark = pytest.mark.spark


def test_a_delta_table_is_written_and_read_back_with_its_user_metadata(spark: Any, home: Path) -> None:
    table = str(home / "table")
    spark.range(10).write.format("delta").option("userMetadata", "until 10").save(table)
    assert spark.read.format("delta").load(table).count() == 10
    assert spark.sql(f"DESCRIBE HISTORY delta.`{table}`").first()["userMetadata"] == "until 10"


def test_spark_reads_what_kafka_holds(spark: Any, kafka: Kafka, topic: str) -> None:
    from kafka import KafkaProducer

    with KafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
        for number in range(7):
            producer.send(topic, value=b"%d" % number)
        producer.flush()
    frame = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap).option("subscribe", topic).load()
    assert sorted(int(row.value) for row in frame.select("value").collect()) == list(range(7))


def test_instants_are_utc_whatever_the_machine_says(spark: Any) -> None:
    assert spark.sql("SELECT CAST(TIMESTAMP '2026-03-01 12:00:00' AS STRING) || current_timezone()").first()[0] == "2026-03-01 12:00:00UTC"


def test_shuffles_have_as_many_partitions_as_there_are_cores(settings_for: Any) -> None:
    assert spark_options(settings_for(spark_master="local[3]"))["spark.sql.shuffle.partitions"] == "3"
    assert spark_options(settings_for(spark_master="local-cluster[2,2,1024]"))["spark.sql.shuffle.partitions"] == "4"
