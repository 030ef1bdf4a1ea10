"""Readers that never stop asking, while the speed layer counts and nights are published beside it."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from batch_layer.night import NightReport, run_night
from batch_layer.workplace import Workplace
from serving.audit.compare import compare_view
from serving.audit.recount import fold_log, judge_log
from serving.store import database, manifests, read
from serving.store.generations import list_generations
from serving.store.records import Answer, Query
from serving.store.vectors import OffsetVector
from tests.conftest import Kafka
from tests.speed.speed_line import DAY, SpeedLine, end_of, event, mixed
from views.registry import ALL_VIEWS
from views.view import View

pytestmark = pytest.mark.stack


class Reader:
    """Asks one view for everything, over and over, and keeps each answer that differs from the one before."""

    def __init__(self, line: SpeedLine, view: View) -> None:
        self.view, self._line = view, line
        self.asked = 0
        self.answers: list[Answer] = []
        self.failure: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            with closing(database.connect(self._line.database_url, name="reader")) as connection:
                while not self._done.wait(0.02):
                    answer = read.read(connection, self._line.settings.line, self.view, Query())
                    self.asked += 1
                    if not self.answers or _identity(answer) != _identity(self.answers[-1]):
                        self.answers.append(answer)
        except BaseException as failure:
            self.failure = failure


def _identity(answer: Answer) -> tuple[object, ...]:
    return answer.provenance.manifest, answer.provenance.frontier, tuple(tuple(row.items()) for row in answer.rows)


def _night(line: SpeedLine, spark: SparkSession) -> NightReport:
    with Workplace(line.settings, line.bootstrap, line.database_url, ALL_VIEWS, spark=spark) as place:
        return run_night(place, lambda _, work: work())


@pytest.mark.timeout(400)
def test_every_answer_equals_the_truth_at_its_own_frontier_while_nights_are_published(
    home: Path, kafka: Kafka, topic: str, fresh_database_url: str, spark: SparkSession
) -> None:
    line = SpeedLine.of(home, kafka.bootstrap, fresh_database_url, topic, spark, max_events_per_epoch=250, trigger_ms=100)
    line.send(mixed(0, 300))
    line.catch_up()
    with line.running(take_over=True) as life, Reader(line, ALL_VIEWS[0]) as usage, Reader(line, ALL_VIEWS[1]) as revenue:
        for night in range(3):
            first = 1_000 * (night + 1)
            late = [(number % 4, event(number, at=DAY - timedelta(hours=number % 26))) for number in range(90_000 + first, 90_020 + first)]
            again = [(number % 4, event(number)) for number in range(0, first, 37)]
            line.send([*mixed(first, 300, seed=night), *late, *again])
            report = _night(line, spark)
            assert report.published
        life.reach(end_of(line))
    with closing(database.connect(line.database_url)) as connection:
        assert [manifest.manifest for manifest in manifests.list_manifests(connection, "main")] == [0, 1, 2, 3]
        cuts = [generation.cut for generation in list_generations(connection, "main") if generation.cut is not None]
    assert line.audited().exact
    judged = judge_log(line.log(OffsetVector(), end_of(line)))
    for reader in (usage, revenue):
        assert reader.failure is None, reader.failure
        assert {answer.provenance.manifest for answer in reader.answers} >= {0, 1, 2, 3}, "a publish went by unseen"
        for answer in reader.answers:
            truth = fold_log(judged, [reader.view], answer.provenance.frontier, since=OffsetVector(), cuts=cuts)
            compared = compare_view(reader.view, truth.cells[reader.view.name], answer)
            assert not compared.differences, (answer.provenance, compared.differences[:3])
            assert answer.provenance.from_batch + answer.provenance.from_speed == truth.total.counted
