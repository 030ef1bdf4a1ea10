"""Any order of commits, seals, nights, rollbacks, expiries, zombies and crashes: every answer is exact at its own frontier."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

import psycopg
import pytest

from serving.errors import Fenced, NightlyLocked, SeamGap, StaleFrontier, UnknownManifest, ViewNotReady
from serving.store import epochs, generations, manifests, read, schema
from serving.store.database import Connection, connect
from serving.store.records import LineInfo, ManifestId, Query
from serving.store.vectors import OffsetVector
from tests.store.hand_run import Speed, build, night
from tests.store.tape import Tape, shown
from views.registry import ALL_VIEWS
from views.view import View

STEPS = 45
LINE = "main"


class Schedule:
    """One random schedule, and a plain model of which question may be answered."""

    def __init__(self, url: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.url = url
        self.conn: Connection = connect(url)
        self.tape = Tape(self.rng)
        self.tape.produce(20)
        origin = OffsetVector.of({0: self.rng.randrange(0, len(self.tape.partitions[0]) + 1)})
        for at in range(origin[0]):  # what lies before the origin is nobody's
            self.tape.partitions[0][at] = None
        schema.create_line(self.conn, LineInfo(LINE, "transactions", "topic-1", origin), ALL_VIEWS)
        self.folded: list[tuple[OffsetVector, set[str]]] = []
        self.speed = Speed(self.conn, LINE, self.tape, ALL_VIEWS)
        self.zombie: Speed | None = None

    def step(self) -> str:
        steps = {
            self.commit: 8, self.night: 3, self.seal: 2, self.roll_back: 3, self.expire: 2, self.restart: 2,
            self.zombie_commits: 2, self.commit_again: 1, self.crash: 2, self.overtaken_night: 1,
        }  # fmt: skip
        chosen = self.rng.choices(list(steps), list(steps.values()))[0]
        chosen()
        return chosen.__name__

    def _until(self) -> OffsetVector:
        self.tape.produce(self.rng.randrange(0, 15))
        at, end = self.speed.frontier, self.tape.end
        return OffsetVector.of({p: self.rng.randint(at[p], end[p]) for p in range(len(self.tape.partitions))})

    def commit(self) -> None:
        until = self._until()
        self.speed.commit(until)
        self.folded.append((until, {view.name for view in self.speed.views}))

    def commit_again(self) -> None:
        """The answer to a commit was lost and it is sent again."""
        start, seen = self.speed.frontier, set(self.speed.seen)
        self.commit()
        if self.speed.frontier != start:
            self.speed.frontier, self.speed.seen = start, seen
            with pytest.raises(StaleFrontier):
                self.speed.commit(self.folded[-1][0])
            self.speed = Speed(self.conn, LINE, self.tape, self.speed.views)

    def restart(self) -> None:
        self.zombie = self.speed
        views: Sequence[View] = ALL_VIEWS if self.rng.random() < 0.8 else self.rng.sample(ALL_VIEWS, 2)
        self.speed = Speed(self.conn, LINE, self.tape, views)

    def zombie_commits(self) -> None:
        if self.zombie is not None:
            with pytest.raises(Fenced):
                self.zombie.commit(self.tape.end)
            with pytest.raises(Fenced):
                epochs.sign_of_life(self.conn, LINE, self.zombie.token)

    def crash(self) -> None:
        """A writer that has written its rows and not yet committed loses its connection."""
        epoch, _ = self.speed.plan(self._until())
        doomed = connect(self.url)
        doomed.execute("BEGIN")
        doomed.execute("SELECT line_main.hold_frontier(%s, NULL)", (self.speed.token,))
        for view in self.speed.views:
            if epoch.cells[view.fingerprint].num_rows:
                doomed.execute(epochs._upsert(LINE, view), epochs._cell_arrays(view, epoch.cells[view.fingerprint]))
        doomed.close()
        self.speed = Speed(self.conn, LINE, self.tape, self.speed.views)

    def seal(self) -> None:
        sealed = generations.seal(self.conn, LINE)
        assert sealed.cut == self.speed.frontier

    def night(self) -> None:
        views = ALL_VIEWS if self.rng.random() < 0.8 else self.rng.sample(ALL_VIEWS, 2)
        published = night(self.conn, LINE, self.tape, views)
        assert published.current and published.cut == self.speed.frontier

    def overtaken_night(self) -> None:
        """Two runs, of which the first lost its lock: whoever publishes second is refused."""
        with connect(self.url) as first:
            overtaken = build(first, LINE, self.tape, ALL_VIEWS)
            first.execute("SELECT pg_advisory_unlock_all()")
        winner = build(self.conn, LINE, self.tape, ALL_VIEWS)
        manifests.publish(self.conn, LINE, winner)
        manifests.end_run(self.conn, LINE, winner.run)
        with pytest.raises(NightlyLocked):
            manifests.publish(self.conn, LINE, overtaken)

    def roll_back(self) -> None:
        known = manifests.list_manifests(self.conn, LINE)
        before = manifests.current(self.conn, LINE)
        wanted = ManifestId(self.rng.randrange(0, known[-1].manifest + 2))
        target = next((m for m in known if m.manifest == wanted), None)
        if target is None:
            with pytest.raises(UnknownManifest):
                manifests.roll_back(self.conn, LINE, wanted)
        elif any(self.ready(view, before[0]) and not self.ready(view, target) for view in ALL_VIEWS):
            with pytest.raises(ViewNotReady):
                manifests.roll_back(self.conn, LINE, wanted)
        else:
            assert manifests.roll_back(self.conn, LINE, wanted).manifest == wanted
            return
        assert manifests.current(self.conn, LINE) == before

    def expire(self) -> None:
        # this tape re-delivers from any age, so all of it lies within the horizon
        manifests.expire(self.conn, LINE, retained=self.rng.randrange(1, 5), horizon=timedelta(days=36500))

    def ready(self, view: View, manifest: manifests.Manifest) -> bool:
        named = manifest.generation == 0 or view.name in manifest.fingerprints
        return named and all(view.name in folded for until, folded in self.folded if not manifest.cut.reaches(until))

    def check(self) -> None:
        published, _ = manifests.current(self.conn, LINE)
        for view in ALL_VIEWS:
            if not self.ready(view, published):
                with pytest.raises(ViewNotReady):
                    read.read(self.conn, LINE, view, Query())
                with pytest.raises(psycopg.Error, match="ViewNotReady"):
                    self.conn.execute(f"SELECT * FROM seam.{view.name}")
                continue
            self._check_view(view)
        for manifest in manifests.list_manifests(self.conn, LINE):
            view = self.rng.choice(ALL_VIEWS)
            if manifest.generation == 0 or view.name in manifest.fingerprints:
                answer = read.read(self.conn, LINE, view, Query(as_of=manifest.manifest))
                assert _rows(answer) == shown(view, self.tape.distinct_below(manifest.cut))
                assert answer.provenance.frontier == manifest.cut == answer.provenance.cut

    def _check_view(self, view: View) -> None:
        answer = read.read(self.conn, LINE, view, Query())
        truth = self.tape.distinct_below(answer.provenance.frontier)
        assert answer.provenance.frontier == self.speed.frontier
        assert _rows(answer) == shown(view, truth)
        assert answer.provenance.from_batch + answer.provenance.from_speed == len(truth)
        assert answer.provenance.from_batch == len(self.tape.distinct_below(answer.provenance.cut))
        total = read.read(self.conn, LINE, view, Query(total=True))
        assert _rows(total) == shown(view, truth, total=True)


def _rows(answer: read.Answer) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name != "final"} for row in answer.rows]


@pytest.mark.parametrize("seed", range(8))
def test_after_every_step_of_any_schedule_every_answer_equals_the_truth_at_its_frontier(store_url: str, seed: int) -> None:
    schedule = Schedule(store_url, seed)
    done: list[str] = []
    try:
        for _ in range(STEPS):
            done.append(schedule.step())
            schedule.check()
    except BaseException:
        print(f"seed {seed}, steps: {' '.join(done)}")
        raise
    finally:
        schedule.conn.close()


def test_a_generation_whose_rows_are_gone_is_a_gap_and_not_a_smaller_number(conn: Connection, tape: Tape) -> None:
    speed = Speed(conn, LINE, tape, ALL_VIEWS)
    speed.commit(tape.end)
    generations.seal(conn, LINE)
    conn.execute("UPDATE line_main.generations SET rows_expired = true WHERE generation = 1")
    for view in ALL_VIEWS:
        with pytest.raises(SeamGap):
            read.read(conn, LINE, view, Query())
        with pytest.raises(psycopg.Error, match="SeamGap"):
            conn.execute(f"SELECT count(*) FROM seam.{view.name}")
