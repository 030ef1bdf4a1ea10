"""A line on real Kafka, Delta and PostgreSQL whose speed side is committed by hand, beside the audit's naive recount."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TypeVar

import pyarrow as pa
import xxhash
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from batch_layer.night import NightReport, run_night
from batch_layer.workplace import Workplace
from infra.crash import CrashPoint
from infra.kafka_log import KafkaLog
from infra.settings import Settings
from serving.audit.compare import compare_view
from serving.audit.judge import Event
from serving.audit.recount import Judged, Truth, fold_events, fold_log, judge_log
from serving.audit.sources import read_topic
from serving.store import database, epochs, generations, manifests, read, schema
from serving.store.records import Epoch, LineInfo, ManifestId, Marker, PartitionCounts, QuarantineRow, Query, SeenIds
from serving.store.vectors import OffsetVector
from views.event import Reason
from views.registry import ALL_VIEWS
from views.view import View

T = TypeVar("T")

DAY_ONE = datetime(2026, 3, 1, tzinfo=UTC)
Sending = tuple[int, bytes | None]
"""The partition to send to, and the value."""


def event(number: int, at: datetime, *, amount: int | None = None, transaction_id: str | None = None) -> bytes:
    fields = {
        "transaction_id": transaction_id or f"t-{number}",
        "event_time": at.isoformat(),
        "account_id": f"a-{number % 7}",
        "merchant_id": f"m-{number % 5}",
        "amount_cents": number * 10 - 40 if amount is None else amount,
        "currency": ("EUR", "USD")[number % 2],
        "kind": "purchase",
    }
    return json.dumps(fields).encode()


def day_of_events(
    first: int, count: int, day: datetime, *, late_for: datetime | None = None, again: Sequence[bytes] = (), seed: int = 1
) -> list[Sending]:
    """Events of one day over four partitions, every tenth late for an earlier day, every tenth sent twice, a few broken."""
    random = Random(seed)
    sent: list[Sending] = []
    for number in range(first, first + count):
        late = late_for is not None and number % 10 == 3
        at = (late_for if late and late_for else day) + timedelta(seconds=random.randrange(86_400))
        sent.append((random.randrange(4), event(number, at)))
        if number % 10 == 7:
            sent.append((random.randrange(4), random.choice(sent)[1]))
    sent += [(random.randrange(4), value) for value in again]
    sent += [(0, b"{broken"), (1, None), (3, b'{"transaction_id": 7}')]
    random.shuffle(sent)
    return sent


def run_plain(name: str, work: Callable[[], T]) -> T:
    return work()


class HandFedLine:
    def __init__(
        self, bootstrap: str, topic: str, url: str, home: Path, spark: SparkSession | None, views: Sequence[View] = ALL_VIEWS
    ) -> None:
        self.bootstrap, self.topic, self.url, self.views, self.spark = bootstrap, topic, url, tuple(views), spark
        self.settings = Settings(home=home, topic=topic)
        self.connection = database.connect(url)
        with KafkaLog(bootstrap, topic) as log:
            info = LineInfo("main", topic, log.topic_id(), log.beginning())
        self.info = schema.create_line(self.connection, info, views)
        self.token = epochs.take_over(self.connection, "main")
        self.seen: set[str] = set()

    def close(self) -> None:
        self.connection.close()

    def send(self, sendings: Iterable[Sending]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000})
        for partition, value in sendings:
            producer.produce(self.topic, value=value, partition=partition)
        assert producer.flush(30) == 0

    def end(self) -> OffsetVector:
        with KafkaLog(self.bootstrap, self.topic) as log:
            return log.end()

    def log(self) -> list[Judged]:
        return judge_log(read_topic(self.bootstrap, self.topic, self.info.origin, self.end()))

    def speed(self, until: OffsetVector | None = None) -> None:
        """Commits one epoch up to `until`, or to the log's end, folded by the audit."""
        start, until = epochs.read_frontier(self.connection, "main").until, until or self.end()
        inside = [each for each in self.log() if start[each.partition] <= each.offset < until[each.partition]]
        inside.sort(key=lambda each: (each.log_time_ms, each.partition, each.offset))
        tallies: dict[int, list[int]] = {}
        counted: list[Event] = []
        quarantine: list[QuarantineRow] = []
        for each in inside:
            tally = tallies.setdefault(each.partition, [0, 0, 0, 0])
            tally[0] += 1
            if isinstance(each.verdict, Reason):
                tally[3] += 1
                quarantine.append(QuarantineRow(each.partition, each.offset, str(each.verdict), "", _instant(each.log_time_ms)))
            elif each.verdict.transaction_id in self.seen:
                tally[2] += 1
            else:
                tally[1] += 1
                self.seen.add(each.verdict.transaction_id)
                counted.append(each.verdict)
        checksum = 0
        for counted_event in counted:
            checksum ^= counted_event.id_hash
        newest = _instant(max((each.log_time_ms for each in inside), default=0))
        epoch = Epoch(
            start=start,
            until=until,
            markers={each.partition: Marker(each.offset, None, 0) for each in inside},
            partitions={partition: PartitionCounts(*tally) for partition, tally in tallies.items()},
            late=0,
            id_checksum=checksum,
            watermark=max((_instant(each.event_time_us // 1000) for each in counted), default=None),
            cells={view.fingerprint: _cell_table(view, counted) for view in self.views},
            seen=SeenIds(b"".join(_packed(each.transaction_id) for each in counted), newest) if counted else None,
            quarantine=quarantine,
        )
        epochs.commit_epoch(self.connection, "main", self.token, epoch, self.views)

    def workplace(self, *, crash: CrashPoint | None = None) -> Workplace:
        return Workplace(self.settings, self.bootstrap, self.url, self.views, crash=crash, spark=self.spark)

    def night(self) -> NightReport:
        with self.workplace() as place:
            return run_night(place, run_plain)

    def truth(self, until: OffsetVector | None = None) -> Truth:
        cuts = [each.cut for each in generations.list_generations(self.connection, "main") if each.cut is not None and each.generation]
        return fold_log(self.log(), self.views, until, cuts=cuts)

    def assert_exact(self, *, as_of: int | None = None) -> None:
        """Every cell of every view, merged or at one manifest's cut, is the recount's."""
        for view in self.views:
            answer = read.read(self.connection, "main", view, Query(as_of=None if as_of is None else ManifestId(as_of)))
            truth = self.truth(answer.provenance.frontier)
            audit = compare_view(view, truth.cells[view.name], answer)
            assert audit.differences == ()
            assert audit.cells_compared == len(truth.cells[view.name])

    def current(self) -> int:
        return manifests.current(self.connection, "main")[0].manifest


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)


def _packed(transaction_id: str) -> bytes:
    data = transaction_id.encode()
    hashes = (xxhash.xxh64_intdigest(data, 42), xxhash.xxh64_intdigest(data, xxhash.xxh64_intdigest(b"seam", 42)))
    return b"".join(number.to_bytes(8, "little") for number in hashes)


def _cell_table(view: View, counted: Sequence[Event]) -> pa.Table:
    cells = fold_events(view, counted)
    columns = {field: pa.array([name.key[place] for name in cells], pa.string()) for place, field in enumerate(view.key)}
    columns["window_start"] = pa.array([name.window_start for name in cells], pa.int64())
    for column in view.measure_columns:
        columns[column.name] = pa.array([cell.measures[column.name] for cell in cells.values()], pa.int64())
    columns["events"] = pa.array([cell.events for cell in cells.values()], pa.int64())
    columns["id_checksum"] = pa.array([cell.id_checksum for cell in cells.values()], pa.int64())
    return pa.table(columns)
