"""The store as the routes use it: few asynchronous connections for merged reads, a thread for everything rare.

A slot holds a connection or None; where it is None or broken, the next use opens a new one. So the interface starts
without a database, fails at once while it is away, and needs nothing to recover.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import psycopg
from starlette.concurrency import run_in_threadpool

from serving.api.side import SideConnection
from serving.api.wire import NoAnswerInTime, Rows, Wire
from serving.errors import StoreUnavailable
from serving.store import database, manifests, read
from serving.store.records import Answer, Manifest, ManifestId, Query, SeamState
from views.view import View

MOST_WAITING = 500
WAIT_SECONDS = 5.0
STATEMENT_SECONDS = 10
_WAIT_FOR_ROWS_SECONDS = STATEMENT_SECONDS + 2.0
"""The server ends a slow statement; this ends the wait for a server that hangs."""
_HEALTH_SECONDS = 1.0
_PROBE_SECONDS = 3.0
_OPTIONS = f"-c statement_timeout={STATEMENT_SECONDS}s -c default_transaction_read_only=on -c timezone=UTC -c jit=off"


class StorePool:
    def __init__(self, url: str, line: str, *, connections: int = 8) -> None:
        database.schema_of(line)
        self._url, self._line = url, line
        self._free: list[Wire | None] = [None] * connections
        self._waiting: deque[asyncio.Future[Wire | None]] = deque()
        self._side = SideConnection(url)
        self._probe: asyncio.Task[bool] | None = None
        self._probe_holds_until = 0.0

    async def answer(self, view: View, query: Query) -> Answer:
        """The merged rows of one question: one statement, one round trip."""
        text, parameters = read.statement(self._line, view, query)
        return read.answer(view, query, await self._fetch(text, parameters))

    async def seam(self) -> SeamState:
        return await run_in_threadpool(self._side.run, lambda conn: read.seam(conn, self._line))

    async def manifests(self) -> list[Manifest]:
        return await run_in_threadpool(self._side.run, lambda conn: manifests.list_manifests(conn, self._line))

    async def publish(self, manifest: ManifestId) -> Manifest:
        """Move the pointer to a retained manifest.

        Guarantees: one transaction of the store; doing it twice leaves the same pointer.
        """

        def move() -> Manifest:
            with database.connect(self._url, name="seam-api-admin") as conn:
                return manifests.roll_back(conn, self._line, manifest)

        return await run_in_threadpool(move)

    async def is_answering(self) -> bool:
        """Whether the database answers; asked at most once a second, however many want to know."""
        now = asyncio.get_running_loop().time()
        if self._probe is None or (self._probe.done() and now >= self._probe_holds_until):
            self._probe, self._probe_holds_until = asyncio.create_task(self._answers()), now + _HEALTH_SECONDS
        done, _ = await asyncio.wait({self._probe}, timeout=_PROBE_SECONDS)
        return bool(done) and self._probe.result()

    async def _answers(self) -> bool:
        try:
            return await self._fetch(b"SELECT 1", {}) == [(1,)]
        except StoreUnavailable:
            return False

    async def _fetch(self, text: bytes, parameters: Mapping[str, object]) -> Rows:
        wire = await self._take()
        try:
            with database.translated(self._line):
                if wire is not None and not wire.closed:
                    try:
                        return await wire.fetch(text, parameters, _WAIT_FOR_ROWS_SECONDS)
                    except psycopg.OperationalError as error:
                        # A kept connection may die with its server; a read may be asked twice.
                        if not _was_lost(error):
                            raise
                wire = await self._connect()
                return await wire.fetch(text, parameters, _WAIT_FOR_ROWS_SECONDS)
        finally:
            self._give_back(wire)

    async def _connect(self) -> Wire:
        return await Wire.connect(self._url, connect_timeout=5, application_name="seam-api", options=_OPTIONS)

    async def _take(self) -> Wire | None:
        if self._free:
            return self._free.pop()
        if len(self._waiting) >= MOST_WAITING:
            raise StoreUnavailable("Too many requests wait for the database.", fix="Try again.")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Wire | None] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_later(WAIT_SECONDS, _give_up, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._give_back(waiter.result())
            raise
        finally:
            timer.cancel()

    def _give_back(self, wire: Wire | None) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(wire)
                return
        self._free.append(wire)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for wire in self._free:
                if wire is not None:
                    wire.close()
            self._free.clear()
            await run_in_threadpool(self._side.close)


def _give_up(waiter: asyncio.Future[Wire | None]) -> None:
    if not waiter.done():
        waiter.set_exception(StoreUnavailable("All connections to the database are busy.", fix="Try again."))


def _was_lost(error: psycopg.OperationalError) -> bool:
    """Whether the connection ended, rather than the statement or our patience."""
    return not isinstance(error, NoAnswerInTime) and (error.sqlstate is None or error.sqlstate.startswith("57P"))
