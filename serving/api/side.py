"""One ordinary connection for the rare questions, kept between them and used by one thread at a time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from serving.errors import StoreUnavailable
from serving.store import database

Result = TypeVar("Result")


class SideConnection:
    def __init__(self, url: str) -> None:
        self._url, self._lock = url, Lock()
        self._conn: database.Connection | None = None

    def run(self, work: Callable[[database.Connection], Result]) -> Result:
        """The result of a read; asked a second time on a new connection where the kept one had died meanwhile."""
        with self._lock:
            if self._conn is not None:
                try:
                    return work(self._conn)
                except StoreUnavailable:
                    if not self._conn.closed:
                        raise
                    self._conn = None
            self._conn = database.connect(self._url, name="seam-api")
            return work(self._conn)

    def close(self) -> None:
        with self._lock:
            if self._conn is not None:
                self._conn.close()
            self._conn = None
