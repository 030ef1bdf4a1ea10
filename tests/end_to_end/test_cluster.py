"""Spark is the engine at every size: both layers on a cluster whose executors are processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Kafka
from tests.end_to_end.checkout import Checkout
from tests.speed.speed_line import POISON, SpeedLine, mixed

pytestmark = pytest.mark.stack


@pytest.mark.timeout(600)
def test_the_speed_layer_and_a_night_are_exact_on_a_cluster_of_two_workers(
    home: Path, kafka: Kafka, topic: str, fresh_database_url: str
) -> None:
    line = SpeedLine.of(home, kafka.bootstrap, fresh_database_url, topic)
    services = {"SEAM_KAFKA_BOOTSTRAP": kafka.bootstrap, "SEAM_DATABASE_URL": fresh_database_url, "SEAM_TOPIC": topic}
    cluster = Checkout(home / "checkout", {**services, "SEAM_SPARK_MASTER": "local-cluster[2,1,1024]"})
    line.send([*mixed(0, 500), *((number % 4, value) for number, value in enumerate(POISON))])
    cluster.seam("speed", "--until-caught-up")
    assert cluster.seam("nightly", "--json")["published"]
    audited = cluster.seam("audit", "--json")
    assert audited["exact"], audited
    assert audited["deliveries"]["quarantined"] == len(POISON)
    sides = audited["views"][0]
    assert (sides["from_batch"], sides["from_speed"]) == (500, 0)
