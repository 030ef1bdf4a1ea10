"""The store as the routes use it: few asynchronous connections for merged reads, a thread for everything rare.

A slot holds a connection or None; a broken connection leaves its slot empty and the next use opens a new one. So the
interface starts without a database, fails at once while it is away, and needs nothing to recover. (A general pool takes
a third of the time of a point read.)
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from starlette.concurrency import run_in_threadpool

from serving.api.side import SideConnection
from serving.errors import StoreUnavailable
from serving.store import database, manifests, read
from serving.store.records import Answer, Manifest, ManifestId, Query, SeamState
from views.view import View

AsyncConnection = psycopg.AsyncConnection[Any]
Rows = list[tuple[Any, ...]]

MOST_WAITING = 500
WAIT_SECONDS = 5.0
STATEMENT_SECONDS = 10
_HEALTH_SECONDS = 1.0
_PROBE_SECONDS = 3.0
_OPTIONS = f"-c statement_timeout={STATEMENT_SECONDS}s -c default_transaction_read_only=on -c timezone=UTC -c jit=off"


class StorePool:
    def __init__(self, url: str, line: str, *, connections: int = 8) -> None:
        database.schema_of(line)
        self._url, self._line = url, line
        self._free: list[AsyncConnection | None] = [None] * connections
        self._waiting: deque[asyncio.Future[AsyncConnection | None]] = deque()
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
        conn = await self._take()
        try:
            if conn is not None:
                try:
                    with database.translated(self._line):
                        return await _run(conn, text, parameters)
                except StoreUnavailable:
                    if not conn.closed:
                        raise
            # It died while nobody used it (the database was restarted), or there was none yet. A read may be asked twice.
            if conn is not None:
                conn.pgconn.finish()
                conn = None
            with database.translated(self._line):
                conn = await self._connect()
                return await _run(conn, text, parameters)
        finally:
            self._give_back(conn)

    async def _connect(self) -> AsyncConnection:
        return await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            prepare_threshold=0,
            connect_timeout=5,
            application_name="seam-api",
            client_encoding="utf8",
            options=_OPTIONS,
        )

    async def _take(self) -> AsyncConnection | None:
        if self._free:
            return self._free.pop()
        if len(self._waiting) >= MOST_WAITING:
            raise StoreUnavailable("Too many requests wait for the database.", fix="Try again.")
        waiter: asyncio.Future[AsyncConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self._give_back(waiter.result())
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            if isinstance(error, TimeoutError):
                raise StoreUnavailable("All connections to the database are busy.", fix="Try again.") from None
            raise

    def _give_back(self, conn: AsyncConnection | None) -> None:
        kept = (
            conn if conn is not None and not conn.closed and conn.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE else None
        )
        if conn is not None and kept is None:
            conn.pgconn.finish()
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(kept)
                return
        self._free.append(kept)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for conn in self._free:
                if conn is not None:
                    await conn.close()
            self._free.clear()
            await run_in_threadpool(self._side.close)


async def _run(conn: AsyncConnection, text: bytes, parameters: Mapping[str, object]) -> Rows:
    # The server's own timeout ends a slow statement; the timer ends the wait for a server that hangs.
    timer = asyncio.get_running_loop().call_later(STATEMENT_SECONDS + 2, _hang_up, conn)
    try:
        cursor = await conn.execute(text, parameters, prepare=True)
        return await cursor.fetchall()
    finally:
        timer.cancel()


def _hang_up(conn: AsyncConnection) -> None:
    """Ends the conversation at the socket, so that whoever waits on it gets a lost connection."""
    if not conn.closed:
        with socket.socket(fileno=os.dup(conn.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
