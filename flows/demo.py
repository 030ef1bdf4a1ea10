"""The whole story on an empty folder: two days of events, two nights, a kill, a rollback, and the proof at the end.

Wiring only: each step runs the `seam` command a user would type, in a process of its own, and shows what it said.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Shown

from flows.demo_watch import Watch, bar
from flows.report import Report, Table, write_report
from infra.kafka_log import KafkaLog
from infra.settings import Settings
from infra.stack import Endpoints, endpoints
from serving.errors import StackFault
from serving.store import database, epochs

DAY_ONE = date(2026, 3, 1)
DAY_TWO = DAY_ONE + timedelta(days=1)
_MARK = "seam-demo"
_TOP = 6


@dataclass(slots=True)
class Story:
    """What the demo carries from one step to the next."""

    settings: Settings
    console: Console
    events: int
    tables: list[Table] = field(default_factory=list)
    speed: subprocess.Popen[bytes] | None = None

    @property
    def ledgers(self) -> list[Path]:
        return [self.settings.home / "ledger-day-one.jsonl", self.settings.home / "ledger-day-two.jsonl"]

    def seam(self, *words: str) -> Any:
        """Runs one `seam` command to its end and gives what it says as JSON."""
        done = subprocess.run([*_SEAM, *words, "--json"], env=self.environment(), stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise StackFault(f"seam {' '.join(words)} ended with {done.returncode}.", fix=f"Look into {self.settings.log_folder}.")
        return json.loads(done.stdout)

    def environment(self) -> dict[str, str]:
        """Small epochs, so that there is a middle of the work to be killed in."""
        return {**os.environ, "SEAM_HOME": str(self.settings.home), "SEAM_MAX_EVENTS_PER_EPOCH": str(max(1_000, self.events // 20))}

    def start_speed(self) -> None:
        log = (self.settings.log_folder / "demo-speed.log").open("ab")
        self.speed = subprocess.Popen([*_SEAM, "speed", "--take-over"], env=self.environment(), stdout=log, stderr=log)
        log.close()

    def speed_trouble(self) -> str | None:
        if self.speed is not None and (code := self.speed.poll()) is not None:
            return f"the speed layer ended with {code}; see {self.settings.log_folder / 'demo-speed.log'}"
        return None

    def show(self, title: str, note: str, head: list[str], rows: list[list[object]]) -> None:
        shown = Shown(title=title, title_justify="left", title_style="bold", caption=note, caption_justify="left")
        for place, name in enumerate(head):
            shown.add_column(name, justify="left" if place == 0 else "right")
        for row in rows:
            shown.add_row(*(f"{cell:,}" if type(cell) is int else str(cell) for cell in row))
        self.console.print(shown)
        self.tables.append(Table(title, note, head, rows))


_SEAM = (sys.executable, "-m", "flows.cli")


def run_demo(settings: Settings, console: Console, *, events: int, keep_running: bool) -> bool:
    """Tells the story and returns whether every cell was right. Leaves `report.html` in the demo's home."""
    _empty(settings.home)
    story = Story(settings, console, events)
    try:
        story.seam("up", "--only", "kafka,postgres")
        found = endpoints(settings)
        with Watch(found, settings.topic, settings.line) as watch:
            verdict, exact = _tell(story, found, watch)
        path = settings.home / "report.html"
        write_report(Report(verdict, exact, watch.samples, watch.marks, story.tables), path)
        console.print(f"\nA picture of all this: {os.path.relpath(path)}", soft_wrap=True)
        console.print(f"[bold {'green' if exact else 'red'}]{verdict}[/]")
        return exact
    finally:
        _stop_speed(story)
        if not keep_running:
            story.seam("down")


def _tell(story: Story, found: Endpoints, watch: Watch) -> tuple[str, bool]:
    console = story.console
    console.rule("[bold]Day one")
    watch.mark("day one is produced")
    _show_sent(story, "day one", story.seam(*_produce_day_one(story)))
    story.start_speed()
    _await_speed(story, found, "speed layer counts day one")
    _night(story, watch, "first night")
    console.rule("[bold]Day two")
    watch.mark("day two is produced")
    before = _log_end(story, found)
    words = [*_SEAM, *_produce_day_two(story), "--json"]
    producer = subprocess.Popen(words, env=story.environment(), stdout=subprocess.PIPE)
    _kill_speed_half_way(story, found, watch, before)
    _show_sent(story, "day two", json.loads(producer.communicate(timeout=120)[0]))
    story.start_speed()
    _await_speed(story, found, "speed layer, restarted, catches up")
    _show_parts(story, found)
    _night(story, watch, "second night")
    _roll_back_and_forward(story, watch)
    return _audit(story)


def _produce_day_one(story: Story) -> list[str]:
    mix = ["--seed", "1", "--duplicates", "0.05", "--late", "0.01", "--malformed", "0.001"]
    return ["produce", "--events", str(story.events), "--day", DAY_ONE.isoformat(), *mix, "--ledger", str(story.ledgers[0])]


def _produce_day_two(story: Story) -> list[str]:
    """Paced, so that the kill finds the speed layer at work; half of its re-deliveries are of day-one events."""
    mix = ["--seed", "2", "--duplicates", "0.05", "--late", "0.01", "--malformed", "0.001"]
    again = ["--redeliver-from", str(story.ledgers[0]), "--rate", str(max(1, story.events // 12))]
    days = ["--events", str(story.events // 2), "--day", DAY_TWO.isoformat()]
    return ["produce", *days, *mix, *again, "--ledger", str(story.ledgers[1])]


def _show_sent(story: Story, day: str, sent: dict[str, Any]) -> None:
    head = ["day", "events", "deliveries acknowledged", "failed", "unknown", "a second"]
    row = [day, *(sent[name] for name in ("events", "acknowledged", "failed", "unknown", "per_second"))]
    story.show("Sent", "As Kafka acknowledged it; the ledger keeps every position.", head, [row])


def _await_speed(story: Story, found: Endpoints, label: str) -> None:
    """Waits until the frontier is at the log's end, and shows what the epochs counted."""
    end = _log_end(story, found)
    with closing(database.connect(found.database_url, name="seam-demo")) as connection:
        bar(story.console, label, end, lambda: _frontier(story, connection), story.speed_trouble)
        counts = connection.execute(_EPOCH_COUNTS.format(line=story.settings.line)).fetchone()
    if counts is None:
        raise StackFault("The store has no generation.", fix="seam status")
    head = ["", "epochs", "read", "counted", "duplicates", "quarantined", "late"]
    row = ["so far", *(int(count) for count in counts)]
    story.show("What the speed layer counted", "read = counted + duplicates + quarantined, always.", head, [row])


def _kill_speed_half_way(story: Story, found: Endpoints, watch: Watch, before: int) -> None:
    half = before + story.events // 4
    with closing(database.connect(found.database_url, name="seam-demo")) as connection:
        bar(story.console, "speed layer counts day two, until …", half, lambda: _frontier(story, connection), story.speed_trouble)
    if story.speed is None:
        raise StackFault("The speed layer was not started.", fix="seam demo")
    story.speed.kill()
    story.speed.wait()
    story.speed = None
    watch.mark("SIGKILL of the speed layer")
    story.console.print("  [red]… SIGKILL: the speed layer is gone in the middle of its work.[/]")


def _show_parts(story: Story, found: Endpoints) -> None:
    """Merged answers beside their two parts and the ledger's truth, for the busiest merchants and for all."""
    truth_count, truth_cents = _ledger_truth(story.ledgers)
    with closing(database.connect(found.database_url, name="seam-demo")) as connection:
        parts = connection.execute(_PARTS).fetchall()
    rows: list[list[object]] = [_part_row(str(part[0]), part[1:], truth_count[part[0]], truth_cents[part[0]]) for part in parts[:_TOP]]
    columns = [int(sum(part[place] for part in parts)) for place in range(1, 5)]
    rows.append(_part_row("all merchants", columns, truth_count.total(), truth_cents.total()))
    head = ["merchant", "from batch", "from speed", "merged", "ledger's truth", "merged cents", "ledger's cents", "equal"]
    story.show("Merged answers, by SQL", "revenue_by_merchant over both days, before the second night.", head, rows)


def _part_row(name: str, part: Any, count: int, cents: int) -> list[object]:
    from_batch, from_speed, merged, merged_cents = (int(value) for value in part)
    equal = "yes" if (merged, merged_cents) == (count, cents) else "NO"
    return [name, from_batch, from_speed, merged, count, merged_cents, cents, equal]


def _ledger_truth(ledgers: list[Path]) -> tuple[Counter[str], Counter[str]]:
    """By merchant, how many events and cents the ledgers say were sent, each event once."""
    count: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    ids: set[str] = set()
    for ledger in ledgers:
        for line in ledger.open("rb"):
            event = json.loads(line).get("event") if b'"event":' in line else None
            if event is not None and event["transaction_id"] not in ids:
                ids.add(event["transaction_id"])
                count[event["merchant_id"]] += 1
                cents[event["merchant_id"]] += event["amount_cents"]
    return count, cents


def _night(story: Story, watch: Watch, which: str) -> None:
    said = story.seam("nightly")
    watch.mark(f"{which}: manifest {said.get('manifest')} published")
    rows: list[list[object]] = [[name.replace("_", " "), _short(value)] for name, value in said.items()]
    story.show(f"The {which}", "seal, ingest, recompute, check, load, publish, expire", ["", which], rows)


def _roll_back_and_forward(story: Story, watch: Watch) -> None:
    manifests = sorted(manifest["id"] for manifest in story.seam("manifests"))
    rows: list[list[object]] = []
    for manifest in (manifests[-2], manifests[-1]):
        story.seam("rollback", str(manifest))
        watch.mark(f"pointer moved to manifest {manifest}")
        answer = story.seam("query", "system_usage", "--total")
        told = answer["provenance"]
        rows.append([f"manifest {manifest}", told["from_batch"], told["from_speed"], answer["rows"][0]["transactions"]])
    head = ["pointer at", "from batch", "from speed", "merged"]
    story.show("Roll back, and forward again", "The parts move; the answer does not.", head, rows)
    if rows[0][3] != rows[1][3]:
        raise StackFault(f"The answer changed from {rows[0][3]} to {rows[1][3]} with the pointer.", fix="seam audit")


def _audit(story: Story) -> tuple[str, bool]:
    story.console.rule("[bold]The proof")
    done = subprocess.run([*_SEAM, "audit", "--json"], env=story.environment(), stdout=subprocess.PIPE, check=False)
    said = json.loads(done.stdout)
    names = ["view", "cells_compared", "differ", "events", "from_batch", "from_speed"]
    rows: list[list[object]] = [[view[name] for name in names] for view in said["views"]]
    head = [name.replace("_", " ") for name in names]
    story.show("Audit", "Every cell of every view against an independent recount of the log.", head, rows)
    return f"{said['cells_compared']:,} cells compared, {said['differ']:,} differ", done.returncode == 0


def _short(value: object) -> object:
    return value if isinstance(value, int | str) else json.dumps(value)


def _log_end(story: Story, found: Endpoints) -> int:
    with KafkaLog(found.kafka_bootstrap, story.settings.topic) as log:
        return sum(end for _, end in log.end())


def _frontier(story: Story, connection: database.Connection) -> int:
    return sum(until for _, until in epochs.read_frontier(connection, story.settings.line).until)


def _empty(home: Path) -> None:
    """Makes the demo's folder new. Only a folder that an earlier demo made is removed."""
    if home.exists() and any(home.iterdir()) and not (home / _MARK).exists():
        raise StackFault(
            f"{home} is not empty and no demo made it.", untouched="Nothing was touched.", fix="Name another: seam demo --home DIR"
        )
    if (home / _MARK).exists():
        subprocess.run([*_SEAM, "down"], env={**os.environ, "SEAM_HOME": str(home)}, stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(home)
    (home / "logs").mkdir(parents=True)
    (home / _MARK).write_text("This folder belongs to seam demo and is removed by the next one.\n")


def _stop_speed(story: Story) -> None:
    if story.speed is not None and story.speed.poll() is None:
        story.speed.send_signal(signal.SIGTERM)
        try:
            story.speed.wait(timeout=60)
        except subprocess.TimeoutExpired:
            story.speed.kill()


_EPOCH_COUNTS = (
    "SELECT (SELECT epoch FROM line_{line}.frontier), sum(read), sum(counted), sum(duplicates), sum(quarantined), sum(late)"
    " FROM line_{line}.generations"
)
_PARTS = (
    "SELECT merchant_id, sum(from_batch), sum(from_speed), sum(transactions), sum(amount_cents)"
    " FROM seam.revenue_by_merchant GROUP BY merchant_id ORDER BY sum(transactions) DESC, merchant_id"
)
