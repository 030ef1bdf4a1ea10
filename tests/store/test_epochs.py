"""What an epoch must be to be committed, and what a start reads back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from serving.errors import ChecksFailed, Fenced, StaleFrontier, StateTooNew
from serving.store import epochs, quarantine, schema
from serving.store.database import Connection
from serving.store.records import LineInfo, PartitionCounts, QuarantineRow, SeenIds, Token
from serving.store.vectors import OffsetVector
from tests.store.hand_run import LONG_AGO, Speed
from tests.store.tape import Tape
from views.registry import ALL_VIEWS

LINE = "main"


def test_a_line_keeps_the_origin_it_was_made_with(conn: Connection) -> None:
    again = schema.create_line(conn, LineInfo(LINE, "transactions", "topic-2", OffsetVector.of({0: 9})), ALL_VIEWS)
    assert again == schema.read_line(conn, LINE) == LineInfo(LINE, "transactions", "topic-1", OffsetVector())
    assert schema.read_line(conn, "other") is None


def test_state_of_a_newer_release_is_refused(conn: Connection) -> None:
    conn.execute("UPDATE line_main.line SET state_format = 2")
    with pytest.raises(StateTooNew, match="format 2"):
        schema.read_line(conn, LINE)
    with pytest.raises(StateTooNew):
        schema.create_line(conn, LineInfo(LINE, "transactions", "topic-1", OffsetVector()), ALL_VIEWS)


def test_lines_do_not_touch_one_another(conn: Connection, tape: Tape) -> None:
    origin = OffsetVector.of({1: 3})
    schema.create_line(conn, LineInfo("second", "transactions", "topic-1", origin), ALL_VIEWS)
    Speed(conn, LINE, tape, ALL_VIEWS).commit(tape.end)
    assert epochs.read_frontier(conn, "second").until == origin
    assert conn.execute("SELECT count(*) FROM seam_second.system_usage").fetchone() == (0,)


def test_a_commit_moves_frontier_markers_watermark_and_epoch(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    half = OffsetVector.of({0: 4, 1: 3})
    assert speed.commit(half) == 1
    first = epochs.read_frontier(conn, LINE)
    assert (first.until, first.epoch, first.generation) == (half, 1, 1)
    assert {partition: marker.offset for partition, marker in first.markers.items()} == {0: 3, 1: 2}
    assert speed.commit(OffsetVector.of({0: 9, 1: 3})) == 2
    second = epochs.read_frontier(conn, LINE)
    assert {partition: marker.offset for partition, marker in second.markers.items()} == {0: 8, 1: 2}
    assert first.watermark is not None and second.watermark is not None and second.watermark >= first.watermark


def test_an_epoch_that_does_not_add_up_is_not_committed(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    epoch, _ = speed.plan(tape.end)
    counts = epoch.partitions[0]
    usage = ALL_VIEWS[0].fingerprint
    assert epoch.seen is not None
    broken = {
        "a lost delivery": replace(epoch, partitions={**epoch.partitions, 0: replace(counts, read=counts.read + 1)}),
        "more read than there is": replace(
            epoch, partitions={**epoch.partitions, 0: replace(counts, read=999, duplicates=999 - counts.counted - counts.quarantined)}
        ),
        "a negative count": replace(epoch, partitions={**epoch.partitions, 0: PartitionCounts(0, -1, 1, 0)}),
        "a lost quarantine row": replace(epoch, quarantine=epoch.quarantine[1:]),
        "a lost cell": replace(epoch, cells={**epoch.cells, usage: epoch.cells[usage].slice(1)}),
        "a missing view": replace(epoch, cells={}),
        "another checksum": replace(epoch, id_checksum=epoch.id_checksum ^ 1),
        "a lost seen id": replace(epoch, seen=SeenIds(epoch.seen.packed[16:], LONG_AGO)),
        "backwards": replace(epoch, start=tape.end, until=OffsetVector()),
    }
    for bad in broken.values():
        with pytest.raises(ChecksFailed):
            epochs.commit_epoch(conn, LINE, speed.token, bad, ALL_VIEWS)
    assert epochs.read_frontier(conn, LINE).epoch == 0
    assert epochs.commit_epoch(conn, LINE, speed.token, epoch, ALL_VIEWS) == 1


def test_a_refused_commit_leaves_the_connection_usable(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    epoch, _ = speed.plan(tape.end)
    other = Token(epochs.take_over(conn, LINE))
    with pytest.raises(Fenced):
        epochs.commit_epoch(conn, LINE, speed.token, epoch, ALL_VIEWS)
    assert epochs.commit_epoch(conn, LINE, other, epoch, ALL_VIEWS) == 1
    with pytest.raises(StaleFrontier) as caught:
        epochs.commit_epoch(conn, LINE, other, epoch, ALL_VIEWS)
    assert caught.value.retryable and str(tape.end[0]) in str(caught.value)


def test_counts_per_partition_add_up(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    speed.commit(OffsetVector.of({0: 10, 2: 5}))
    speed.commit(tape.end)
    counts = epochs.epoch_counts(conn, LINE)
    assert {partition: read for partition, (read, *_) in counts.items()} == dict(tape.end)
    assert all(read == counted + duplicates + quarantined for read, counted, duplicates, quarantined in counts.values())


def test_seen_ids_come_back_newest_first_up_to_the_most(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    for part in (1, 2, 3, 4):
        speed.commit(OffsetVector.of({p: offset * part // 4 for p, offset in tape.end}))
    everything = list(epochs.load_seen(conn, LINE, since=LONG_AGO, most=10**9))
    assert len(everything) == 4 and sum(len(piece.packed) for piece in everything) == 16 * len(speed.seen)
    newest = list(epochs.load_seen(conn, LINE, since=LONG_AGO, most=len(everything[0].packed) // 16 + 1))
    assert newest == everything[:2]


def test_an_id_expires_only_when_old_by_log_time_and_by_commit_time(conn: Connection, tape: Tape) -> None:
    Speed(conn, LINE, tape, ALL_VIEWS).commit(tape.end)
    now = datetime.now(UTC)
    assert list(epochs.load_seen(conn, LINE, since=now - timedelta(hours=1), most=10**9)), "log time is long ago, commit time is not"
    conn.execute("UPDATE line_main.seen_ids SET committed_at = %s", (now - timedelta(days=3),))
    assert not list(epochs.load_seen(conn, LINE, since=now - timedelta(hours=1), most=10**9))
    conn.execute("UPDATE line_main.seen_ids SET newest_log_time = %s", (now,))
    assert list(epochs.load_seen(conn, LINE, since=now - timedelta(hours=1), most=10**9))


def test_the_source_position_is_never_beyond_the_frontier(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    assert epochs.read_source_position(conn, LINE) is None
    speed.commit(OffsetVector.of({0: 5, 1: 4}))
    epochs.store_source_position(conn, LINE, speed.token, OffsetVector.of({0: 3, 1: 99, 2: 7}))
    assert epochs.read_source_position(conn, LINE) == OffsetVector.of({0: 3, 1: 4})
    epochs.store_source_position(conn, LINE, speed.token, OffsetVector())
    assert epochs.read_source_position(conn, LINE) == OffsetVector()


def test_a_position_is_quarantined_once_by_both_layers(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    epoch, _ = speed.plan(tape.end)
    speed.commit(tape.end)
    kept = quarantine.read(conn, LINE, 1000)
    assert {(row.partition, row.offset) for row in kept} == {(row.partition, row.offset) for row in epoch.quarantine}
    assert all(row.masked == "x\ufffdy" for row in kept), "PostgreSQL holds no U+0000"
    assert quarantine.add(conn, LINE, [*epoch.quarantine, QuarantineRow(9, 9, "not_json", "…", LONG_AGO)]) == 1
    assert quarantine.add(conn, LINE, []) == 0
    assert len(quarantine.read(conn, LINE, 1000)) == len(kept) + 1


def test_an_epoch_without_events_moves_the_frontier(conn: Connection, tape: Tape) -> None:
    tape.partitions[0] = [None, None]
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    assert speed.commit(OffsetVector.of({0: 2})) == 1
    assert epochs.read_frontier(conn, LINE).until == OffsetVector.of({0: 2})
