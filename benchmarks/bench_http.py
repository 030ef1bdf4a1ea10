"""Merged point reads over HTTP beside a hello-world route on the same server, in one run.

    python -m benchmarks.bench_http [--seconds 3] [--rounds 3] [--connections 16]

It starts a PostgreSQL of its own, fills both sides of the seam, serves them in a process of their own and asks from this
one: closed loop, keep-alive, one merchant, currency and minute per request. Nothing is cached between requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from random import Random
from typing import cast

import uvloop

from benchmarks.report import Result, Table, show

KEY, ADMIN_KEY = "r" * 40, "a" * 40
MERCHANTS, MINUTES = 2_000, 20
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LINE = "main"
HELLO, POINT_READ = "hello world", "merged point read"


# --- what is served


def fill(url: str) -> None:
    """One published manifest and one open generation, each with every merchant in every minute."""
    import numpy as np
    import pyarrow as pa

    from serving.store import database, epochs, generations, manifests, schema
    from serving.store.records import Epoch, LineInfo, NewManifest, PartitionCounts, SeenIds
    from serving.store.vectors import OffsetVector
    from views.revenue_by_merchant import VIEW

    count = MERCHANTS * MINUTES
    hashes = np.random.default_rng(1).integers(-(2**62), 2**62, count)
    cells = pa.table(
        {
            "merchant_id": [f"m-{index % MERCHANTS}" for index in range(count)],
            "currency": ["EUR"] * count,
            "window_start": pa.array(int(NOON.timestamp()) + 60 * (np.arange(count) // MERCHANTS), pa.int64()),
            "transactions": pa.array(np.ones(count), pa.int64()),
            "amount_cents": pa.array(np.arange(count), pa.int64()),
            "events": pa.array(np.ones(count), pa.int64()),
            "id_checksum": pa.array(hashes, pa.int64()),
        }
    )
    checksum = int(np.bitwise_xor.reduce(hashes))
    watermark = NOON + timedelta(hours=1)

    def epoch(start: int) -> Epoch:
        counts = PartitionCounts(count, count, 0, 0)
        ends = (OffsetVector.of({0: start}), OffsetVector.of({0: start + count}))
        return Epoch(*ends, {}, {0: counts}, 0, checksum, watermark, {VIEW.fingerprint: cells}, SeenIds(bytes(16 * count), NOON), ())

    with database.connect(url) as conn:
        schema.create_line(conn, LineInfo(LINE, "transactions", "bench", OffsetVector()), [VIEW])
        token = epochs.take_over(conn, LINE)
        epochs.commit_epoch(conn, LINE, token, epoch(0), [VIEW])
        sealed = generations.seal(conn, LINE)
        run = manifests.begin_run(conn, LINE)
        segment = manifests.load_segment(conn, LINE, run.run, VIEW, NOON.date(), [cells])
        manifests.publish(
            conn,
            LINE,
            NewManifest(
                run.run,
                run.base.manifest,
                run.pointer_version,
                sealed.generation,
                OffsetVector.of({0: count}),
                watermark,
                {VIEW.name: VIEW.fingerprint},
                {(VIEW.fingerprint, NOON.date()): segment.segment},
                (run.run,),
                {},
                {},
            ),
        )
        epochs.commit_epoch(conn, LINE, token, epoch(count), [VIEW])
        conn.execute("ANALYZE")


def serve(url: str, secrets: Path, ready_file: Path) -> None:
    """The interface as `python -m serving.api` starts it, with a hello-world route beside the others."""
    import logging

    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from serving.api.app import create_app
    from serving.api.keys import load_keys
    from serving.api.pool import StorePool
    from serving.api.server import server
    from views.revenue_by_merchant import VIEW

    async def hello(request: Request) -> Response:
        return JSONResponse({"hello": "world"})

    logging.basicConfig(level=logging.WARNING)
    app = create_app(StorePool(url, LINE), load_keys(secrets), [VIEW], extra=[Route("/hello", hello)])
    server(app, "127.0.0.1", 0, ready_file).run()


# --- who asks


@dataclass(slots=True)
class Load:
    answered: int = 0
    failed: int = 0
    millis: list[float] = field(default_factory=list)


class Asker(asyncio.Protocol):
    """One keep-alive connection that sends the next request when the answer to the last one is complete."""

    def __init__(self, requests: Iterator[bytes], load: Load) -> None:
        self._requests, self._load = requests, load
        self._received, self._running = b"", True
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def stop(self) -> None:
        self._running = False

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        at = self._received.find(b"content-length: ") + 16
        length = int(self._received[at : self._received.find(b"\r", at)])
        if len(self._received) < head_end + 4 + length:
            return
        self._load.millis.append((time.perf_counter() - self._asked) * 1e3)
        self._load.answered += 1
        self._load.failed += not self._received.startswith(b"HTTP/1.1 200")
        self._received = b""
        if self._running:
            self._ask()
        else:
            self._transport.close()


async def ask(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Load:
    load, loop = Load(), asyncio.get_running_loop()
    askers = []
    for number in range(connections):
        turn = cycle([*requests[number * 97 % len(requests) :], *requests[: number * 97 % len(requests)]])
        _, asker = await loop.create_connection(lambda turn=turn: Asker(turn, load), "127.0.0.1", port)  # type: ignore[misc]
        askers.append(asker)
    await asyncio.sleep(seconds)
    for asker in askers:
        asker.stop()
    await asyncio.wait_for(asyncio.gather(*(asker.closed for asker in askers)), 30)
    return load


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\nX-API-Key: {KEY}\r\n\r\n".encode()


def point_reads() -> list[bytes]:
    random, asked = Random(7), []
    for _ in range(5_000):
        start = NOON + timedelta(minutes=random.randrange(MINUTES))
        span = f"from={start:%Y-%m-%dT%H:%M:%SZ}&to={start + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"
        asked.append(request(f"/v1/views/revenue_by_merchant?merchant_id=m-{random.randrange(MERCHANTS)}&currency=EUR&{span}"))
    return asked


# --- what it costs


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_children(parent: int) -> float:
    total = 0.0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                    total += cpu_seconds(int(entry.name))
            except OSError:
                continue
    return total


@dataclass(frozen=True, slots=True)
class Measured:
    rate: float
    p50: float
    p99: float
    server_us: float
    database_us: float


def measure(port: int, api: int, postmaster: int, requests: Sequence[bytes], connections: int, seconds: float) -> Measured:
    server, store, began = cpu_seconds(api), cpu_of_children(postmaster), time.perf_counter()
    load = uvloop.run(ask(port, requests, connections, seconds))
    took = time.perf_counter() - began
    if load.failed or not load.answered:
        raise SystemExit(f"{load.failed} of {load.answered} requests failed")
    millis = sorted(load.millis)
    each = 1e6 / load.answered
    return Measured(
        load.answered / took,
        millis[len(millis) // 2],
        millis[len(millis) * 99 // 100],
        (cpu_seconds(api) - server) * each,
        (cpu_of_children(postmaster) - store) * each,
    )


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int, int]]:
    """(port, pid of the API, pid of the database server)"""
    from infra.postgres import Postgres
    from infra.settings import load_settings

    folder.chmod(0o711)
    postgres = Postgres.of(load_settings(home=folder / "home"))
    running = postgres.start()
    try:
        fill(postgres.url)
        for name, key in (("api.key", KEY), ("admin.key", ADMIN_KEY), ("database_url", postgres.url)):
            (folder / name).touch(0o600)
            (folder / name).write_text(key)
        ready = folder / "ready.json"
        api = subprocess.Popen([sys.executable, "-m", "benchmarks.bench_http", "--serve", str(folder)])
        try:
            deadline = time.monotonic() + 30
            while not ready.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield json.loads(ready.read_text())["port"], api.pid, running.pid
        finally:
            api.terminate()
            api.wait(20)
    finally:
        postgres.stop()


def compared(*, seconds: float, rounds: int, connections: int) -> dict[str, list[Measured]]:
    """Both kinds of request in turn, so that whatever else the machine does meets both."""
    kinds = {HELLO: [request("/hello")], POINT_READ: point_reads()}
    found: dict[str, list[Measured]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="seam-bench-") as folder, served(Path(folder)) as (port, api, postmaster):
        for number in range(rounds + 1):
            for kind, requests in kinds.items():
                measured = measure(port, api, postmaster, requests, connections, seconds if number else 1.0)
                if number:  # the first round only warms up
                    found[kind].append(measured)
    return found


def bench(*, seconds: float, rounds: int, connections: int = 16) -> Result:
    found = compared(seconds=seconds, rounds=rounds, connections=connections)
    median = {
        kind: {name: statistics.median(getattr(m, name) for m in each) for name in Measured.__slots__} for kind, each in found.items()
    }
    ratio = median[POINT_READ]["rate"] / median[HELLO]["rate"]
    columns = ("", "requests/s", "p50 ms", "p99 ms", "API CPU us", "database CPU us")
    title = f"HTTP, {connections} connections, closed loop, median of {rounds} rounds: {ratio:.2f} of hello world"
    table = Table(title, columns, [(kind, *figures.values()) for kind, figures in median.items()])
    note = "who asks shares the machine with the server, and the next request waits for the answer: rates compare, they do not promise."
    return Result("http", tables=[table], notes=[note], figures={**median, "ratio": ratio})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind, taken in turn")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve((options.serve / "database_url").read_text(), options.serve, options.serve / "ready.json")
        return
    result = bench(seconds=options.seconds, rounds=options.rounds, connections=options.connections)
    if options.json:
        print(json.dumps(result.figures))
    else:
        show(result, judged=True)


if __name__ == "__main__":
    main()
