"""A line in a real store, filled by hand with what a correct speed layer would commit, and ways to damage it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from xxhash import xxh64_intdigest

from infra.deliveries import Mix, planned_deliveries
from infra.generator import Tape
from serving.audit.judge import Event, judge
from serving.audit.recount import Delivery, fold_events
from serving.store import database, epochs, schema
from serving.store.records import Epoch, LineInfo, PartitionCounts, QuarantineRow, SeenIds
from serving.store.vectors import OffsetVector
from views.registry import ALL_VIEWS
from views.view import View

LINE = "main"
START = datetime(2026, 3, 1, tzinfo=UTC)


def made_log(events: int, *, seed: int = 1, partitions: int = 3) -> list[Delivery]:
    """A log of made-up deliveries, spread over partitions, with offsets that have holes."""
    tape = Tape(seed=seed, start=START, gap=timedelta(days=1) / events, late=0.02)
    ends = dict.fromkeys(range(partitions), 0)
    log = []
    for chunk in planned_deliveries(tape, Mix(0.1, 0.02), 0, events, partitions=partitions):
        for planned in chunk.deliveries:
            partition = planned.partition if planned.partition is not None else sum(planned.key or b"") % partitions
            ends[partition] += 2 if ends[partition] % 100 == 50 else 1
            log.append(Delivery(partition, ends[partition] - 1, 1_772_323_200_000 + len(log), planned.value))
    return log


class AuditedLine:
    def __init__(self, url: str, topic: str = "transactions", topic_id: str = "topic-1") -> None:
        self.conn = database.connect(url)
        self.views: Sequence[View] = ALL_VIEWS
        schema.create_line(self.conn, LineInfo(LINE, topic, topic_id, OffsetVector()), self.views)
        self.token = epochs.take_over(self.conn, LINE)
        self.frontier = OffsetVector()
        self.seen: set[str] = set()

    def commit(self, log: Sequence[Delivery]) -> None:
        """One epoch of these deliveries."""
        until = dict(self.frontier)
        counts: dict[int, list[int]] = {}
        fresh: list[Event] = []
        quarantine = []
        for each in log:
            until[each.partition] = max(until.get(each.partition, 0), each.offset + 1)
            read = counts.setdefault(each.partition, [0, 0, 0, 0])
            read[0] += 1
            verdict = judge(each.value)
            if not isinstance(verdict, Event):
                read[3] += 1
                quarantine.append(QuarantineRow(each.partition, each.offset, verdict, "x", START))
            elif verdict.transaction_id in self.seen:
                read[2] += 1
            else:
                read[1] += 1
                self.seen.add(verdict.transaction_id)
                fresh.append(verdict)
        checksum = 0
        for event in fresh:
            checksum ^= event.id_hash
        epoch = Epoch(
            start=self.frontier,
            until=OffsetVector.of(until),
            markers={},
            partitions={partition: PartitionCounts(*read) for partition, read in counts.items()},
            late=0,
            id_checksum=checksum,
            watermark=None,
            cells={view.fingerprint: cell_table(view, fresh) for view in self.views},
            seen=SeenIds(b"".join(map(packed, fresh)), START),
            quarantine=quarantine,
        )
        epochs.commit_epoch(self.conn, LINE, self.token, epoch, self.views)
        self.frontier = epoch.until

    def damage(self, statement: str) -> None:
        """Run a statement with `{revenue}` standing for the speed rows of revenue_by_merchant."""
        view = next(view for view in self.views if view.name == "revenue_by_merchant")
        changed = self.conn.execute(statement.format(revenue=f"line_{LINE}.speed_{view.fingerprint}", line=f"line_{LINE}"))
        assert changed.rowcount > 0

    def close(self) -> None:
        self.conn.close()


def packed(event: Event) -> bytes:
    """The two hashes by which a store knows an id."""
    second = xxh64_intdigest(event.transaction_id.encode(), xxh64_intdigest(b"seam", 42))
    return event.id_hash.to_bytes(8, "little", signed=True) + second.to_bytes(8, "little")


def cell_table(view: View, events: Iterable[Event]) -> pa.Table:
    cells = fold_events(view, events)
    columns = {field: pa.array([name.key[place] for name in cells], pa.string()) for place, field in enumerate(view.key)}
    columns["window_start"] = pa.array([name.window_start for name in cells], pa.int64())
    for column in view.columns:
        folded = [{**cell.measures, "events": cell.events, "id_checksum": cell.id_checksum}[column.name] for cell in cells.values()]
        columns[column.name] = pa.array(folded, pa.int64())
    return pa.table(columns)
