"""Signs of life: one a second while the speed layer lives, also while it has nothing to count."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from serving.errors import Fenced, SeamError
from serving.store import epochs
from serving.store.database import Connection, connect
from serving.store.records import Token

log = logging.getLogger("seam.speed")

EVERY_SECONDS = 1.0


class Pulse:
    """A thread with a connection of its own. A database that is away is the committer's to report; being fenced is told here."""

    def __init__(self, database_url: str, line: str, token: Token) -> None:
        self._url = database_url
        self._line = line
        self._token = token
        self._end = threading.Event()
        self._fenced: Fenced | None = None
        self._thread = threading.Thread(target=self._beat, name="seam-pulse", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join(timeout=10)

    def check(self) -> None:
        if self._fenced is not None:
            raise self._fenced

    def _beat(self) -> None:
        conn: Connection | None = None
        while True:
            try:
                conn = conn or connect(self._url, name="seam speed pulse")
                epochs.sign_of_life(conn, self._line, self._token)
            except Fenced as fenced:
                self._fenced = fenced
                break
            except SeamError as problem:
                log.warning("no sign of life could be given problem=%s", problem.what)
                if conn is not None:
                    conn.close()
                conn = None
            if self._end.wait(EVERY_SECONDS):
                break
        if conn is not None:
            conn.close()
