"""The HTTP server: uvicorn with bounds on what a client may send before a request exists, and a file that says it is ready."""

from __future__ import annotations

import json
import os
import socket
from asyncio import TimerHandle, Transport
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 32 << 10
HEAD_SECONDS = 10.0
MOST_CONNECTIONS = 1_000


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers grow beyond bounds or do not arrive in time.

    The parser itself has no limit: one endless header would be collected until memory ends.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head, self._head_bytes, self._head_since = True, 0, self.loop.time()
        self._timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_SECONDS, self._check_head)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES and len(data) < self._head_bytes:
                self.send_400_response("The request line and headers are too long.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes, self._head_since = True, 0, self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def _check_head(self) -> None:
        if self.transport.is_closing():
            return
        if self._in_head and self.loop.time() - self._head_since >= HEAD_SECONDS:
            self.transport.close()
            return
        self._timer = self.loop.call_later(HEAD_SECONDS, self._check_head)


class ReadyServer(uvicorn.Server):
    """Writes where it listens once it does, and takes that file away when it stops."""

    def __init__(self, config: uvicorn.Config, ready_file: Path | None) -> None:
        super().__init__(config)
        self._ready_file = ready_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._ready_file is not None:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            address = f"[{host}]" if ":" in host else host
            partial = self._ready_file.with_name(self._ready_file.name + ".partial")
            partial.write_text(json.dumps({"url": f"http://{address}:{port}", "host": host, "port": port, "pid": os.getpid()}))
            partial.replace(self._ready_file)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)
        await super().shutdown(sockets)


def server(app: ASGIApp, host: str, port: int, ready_file: Path | None = None) -> ReadyServer:
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http=BoundedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
    )
    return ReadyServer(config, ready_file)
