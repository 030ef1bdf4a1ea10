"""What is served, asked for as any user would ask: each view's rows at one frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from serving.errors import SeamError
from serving.store.database import Connection
from serving.store.read import read
from serving.store.records import Answer, Provenance, Query
from views.view import View

if TYPE_CHECKING:
    from serving.client import Seam

_ATTEMPTS = 20
_PAGE = 10_000


class FrontierMoved(SeamError):
    """The pages of one view state different frontiers, so they are not one answer."""

    retryable = True


class Served(Protocol):
    def answer(self, view: View) -> Answer:
        """Every row of the view, with the one frontier at which all of them hold."""


class ServedBySql:
    """One statement, so one snapshot, also while the frontier moves."""

    def __init__(self, conn: Connection, line: str) -> None:
        self._conn = conn
        self._line = line

    def answer(self, view: View) -> Answer:
        return read(self._conn, self._line, view, Query())


class ServedByHttp:
    """Page by page; asked again from the start where the frontier or the manifest moved between two pages."""

    def __init__(self, client: Seam) -> None:
        self._client = client

    def answer(self, view: View) -> Answer:
        for _ in range(_ATTEMPTS):
            pages = list(self._client.pages(view.name, limit=_PAGE))
            if len({(page.provenance.manifest, page.provenance.frontier) for page in pages}) == 1:
                return _joined(pages)
        raise FrontierMoved(
            f"{view.name}: the frontier moved while its pages were read, {_ATTEMPTS} times.",
            fix="Audit over SQL, or when less is produced: seam audit.",
        )


def _joined(pages: list[Answer]) -> Answer:
    last = pages[-1].provenance
    whole = Provenance(
        manifest=last.manifest,
        cut=last.cut,
        frontier=last.frontier,
        from_batch=sum(page.provenance.from_batch for page in pages),
        from_speed=sum(page.provenance.from_speed for page in pages),
        stale_seconds=last.stale_seconds,
    )
    return Answer([row for page in pages for row in page.rows], whole, None)
