"""A view is added to a line that lives: one file, one registry line, no other edit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import Kafka
from tests.end_to_end.checkout import PROJECT, Checkout
from tests.speed.speed_line import SpeedLine, mixed

pytestmark = pytest.mark.stack


def _readme_view() -> str:
    """The file that the README tells its reader to write."""
    found = re.search(r"`views/amounts_by_kind.py`:\n\n```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    assert found, "the README no longer shows how to add a view"
    return found.group(1)


@pytest.mark.timeout(600)
def test_a_view_added_to_a_running_line_is_refused_until_it_is_complete_and_then_right(
    home: Path, kafka: Kafka, topic: str, fresh_database_url: str
) -> None:
    line = SpeedLine.of(home, kafka.bootstrap, fresh_database_url, topic)
    services = {"SEAM_KAFKA_BOOTSTRAP": kafka.bootstrap, "SEAM_DATABASE_URL": fresh_database_url, "SEAM_TOPIC": topic}
    checkout = Checkout(home / "checkout", {**services, "SEAM_SPARK_MASTER": "local[2]"})
    line.send(mixed(0, 400))
    checkout.seam("speed", "--until-caught-up")

    (checkout.folder / "views" / "amounts_by_kind.py").write_text(_readme_view())
    registry = checkout.folder / "views" / "registry.py"
    registry.write_text(registry.read_text().replace("_MODULES = (\n", '_MODULES = (\n    "views.amounts_by_kind",\n'))

    line.send(mixed(400, 400))
    checkout.seam("speed", "--until-caught-up", "--take-over")
    refused = checkout.seam("query", "amounts_by_kind", "--format", "json", "--json", fails=True)
    assert refused["error"]["code"] == "ViewNotReady"
    assert checkout.seam("audit", "--view", "system_usage", "--json")["exact"], "the other views must not wait for the new one"

    checkout.seam("nightly", "--json")
    line.send(mixed(800, 200))
    checkout.seam("speed", "--until-caught-up", "--take-over")
    audited = checkout.seam("audit", "--json")
    assert audited["exact"], audited
    told = {view["view"]: view for view in audited["views"]}["amounts_by_kind"]
    assert told["from_batch"] == 800
    assert told["from_speed"] == 200
    rows = line.query("SELECT kind, transactions FROM seam.amounts_by_kind")
    assert sum(int(row[1]) for row in rows) == 1_000
