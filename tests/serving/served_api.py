"""The HTTP interface over one database, on its real server and a free loopback port, in a thread of the test."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import httpx
from starlette.routing import Route

from serving.api.app import create_app
from serving.api.keys import load_keys
from serving.api.pool import StorePool
from serving.api.server import server
from tests.serving.served_tape import LINE
from views.registry import ALL_VIEWS
from views.view import View

Found = TypeVar("Found")
_HTTP = httpx.Client(trust_env=False, timeout=20)


@dataclass(frozen=True)
class Api:
    url: str
    key: str
    admin_key: str

    def get(self, path: str, **parameters: object) -> httpx.Response:
        return self.send("GET", path, params={name: str(value) for name, value in parameters.items()}, headers={"X-API-Key": self.key})

    def request(self, method: str, path: str, *, key: str = "") -> httpx.Response:
        """With the read key, or another one."""
        return self.send(method, path, headers={"X-API-Key": key or self.key})

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Exactly this, without a key unless `headers` has one."""
        return _HTTP.request(method, self.url + path, **more)


def poll(found: Callable[[], Found | None], seconds: float = 20) -> Found:
    """The first result that is not None or False, or a failure at the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = found()
        if result is not None and result is not False:
            return result
        time.sleep(0.02)
    raise AssertionError(f"nothing within {seconds} s")


def write_keys(folder: Path) -> tuple[str, str]:
    folder.mkdir(mode=0o700, exist_ok=True)
    made = []
    for name in ("api.key", "admin.key"):
        made.append(secrets.token_urlsafe(32))
        (folder / name).write_text(made[-1] + "\n")
        (folder / name).chmod(0o600)
    return made[0], made[1]


@contextmanager
def running_api(database_url: str, folder: Path, views: Sequence[View] = ALL_VIEWS, extra: Sequence[Route] = ()) -> Iterator[Api]:
    """The whole interface on its real server, in a thread of this process."""
    key, admin_key = write_keys(folder)
    ready = folder / "ready.json"
    app = create_app(StorePool(database_url, LINE, connections=4), load_keys(folder), views, extra=extra)
    running = server(app, "127.0.0.1", 0, ready)
    thread = Thread(target=running.run)
    thread.start()
    try:
        poll(lambda: running.started and ready.exists())
        yield Api(httpx.Response(200, content=ready.read_bytes()).json()["url"], key, admin_key)
    finally:
        running.should_exit = True
        thread.join(20)
    assert not thread.is_alive()
