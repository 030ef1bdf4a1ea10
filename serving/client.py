"""The Python client: the HTTP interface with the same records and the same errors as inside.

with Seam("http://127.0.0.1:8080", key_file=".seam/secrets/api.key") as seam:
    for row in seam.rows("revenue_by_merchant", key={"merchant_id": "m-1"}):
        ...
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from serving import errors
from serving.errors import BadRequest, BadSetting, SeamError, StoreUnavailable
from serving.store.records import Answer, ManifestId, Provenance
from serving.store.vectors import OffsetVector

Row = Mapping[str, object]
_ERRORS = {kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SeamError)}
_LONGEST_WAIT_SECONDS = 5.0


class Seam:
    """Questions to one Seam over HTTP. A 503 that says when to come back is retried, up to `retries` times."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        key_file: str | Path | None = None,
        retries: int = 3,
        timeout: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._retries, self._sleep = retries, sleep
        self._http = httpx.Client(base_url=url, headers={"X-API-Key": _key(key, key_file)}, timeout=timeout, trust_env=False)

    def query(
        self,
        view: str,
        *,
        key: Mapping[str, str] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        total: bool = False,
        as_of: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Answer:
        """One page of merged rows, exact at the frontier its provenance states; `next` is None on the last page."""
        given = {
            "from": _instant(start),
            "to": _instant(end),
            "total": "true" if total else None,
            "as_of": as_of,
            "limit": limit,
            "cursor": cursor,
        }
        parameters = {**(key or {}), **{name: str(value) for name, value in given.items() if value is not None}}
        return _answer(self._call("GET", f"/v1/views/{_segment(view)}", parameters))

    def pages(
        self,
        view: str,
        *,
        key: Mapping[str, str] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        as_of: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Answer]:
        """All pages. Each is exact at its own frontier; for one frontier throughout, ask `as_of` a manifest."""
        cursor: str | None = None
        while True:
            page = self.query(view, key=key, start=start, end=end, as_of=as_of, limit=limit, cursor=cursor)
            yield page
            cursor = page.next
            if cursor is None:
                return

    def rows(
        self,
        view: str,
        *,
        key: Mapping[str, str] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        as_of: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Row]:
        """The rows of all pages, one by one; `limit` is the size of a page."""
        for page in self.pages(view, key=key, start=start, end=end, as_of=as_of, limit=limit):
            yield from page.rows

    def views(self) -> list[dict[str, Any]]:
        """The views that can be asked: key fields, window, measures."""
        return self._list("/v1/views")

    def manifests(self) -> list[dict[str, Any]]:
        """What was published and can be rolled back to."""
        return self._list("/v1/manifests")

    def seam(self) -> dict[str, Any]:
        """Where the seam is now."""
        found: dict[str, Any] = self._call("GET", "/v1/seam")
        return found

    def publish(self, manifest: int) -> dict[str, Any]:
        """Move the pointer to a retained manifest; needs the admin key.

        Guarantees: doing it twice leaves the same pointer.
        """
        published: dict[str, Any] = self._call("POST", f"/v1/manifests/{manifest}/publish")
        return published

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Seam:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _list(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("GET", path)
        return found

    def _call(self, method: str, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        for left in range(self._retries, -1, -1):
            try:
                response = self._http.request(method, path, params=parameters)
            except httpx.TransportError as error:
                raise StoreUnavailable(
                    f"The API at {self._http.base_url} does not answer ({type(error).__name__}).", fix="seam up"
                ) from None
            wait = response.headers.get("Retry-After", "")
            if response.status_code != 503 or not left or not wait.isdigit():
                break
            self._sleep(min(float(wait), _LONGEST_WAIT_SECONDS))
        if response.is_success:
            return json.loads(response.content)  # the standard parser keeps sums beyond 64 bits whole
        raise _error(response)


def _key(key: str | None, key_file: str | Path | None) -> str:
    if (key is None) == (key_file is None):
        raise BadSetting("Seam needs a key or a key file, one of them.", fix="`seam status --json` names the key file.")
    if key is not None:
        return key
    try:
        return Path(str(key_file)).read_text().split()[0]
    except (OSError, IndexError) as error:
        raise BadSetting(f"No key in {key_file} ({type(error).__name__}).", fix="`seam status --json` names the key file.") from None


def _segment(view: str) -> str:
    if not view.isidentifier():
        raise errors.UnknownView(f"{view!r} cannot name a view.", fix="`views()` lists them.")
    return view


def _instant(instant: datetime | None) -> str | None:
    if instant is not None and instant.tzinfo is None:
        raise BadRequest(f"{instant} has no offset.", fix="Pass an aware datetime.")
    return None if instant is None else instant.isoformat()


def _answer(document: dict[str, Any]) -> Answer:
    stated = document["provenance"]
    provenance = Provenance(
        manifest=ManifestId(stated["manifest"]),
        cut=OffsetVector.from_json(stated["cut"]),
        frontier=OffsetVector.from_json(stated["frontier"]),
        from_batch=stated["from_batch"],
        from_speed=stated["from_speed"],
        stale_seconds=stated["stale_seconds"],
    )
    return Answer(rows=document["rows"], provenance=provenance, next=document["next"])


def _error(response: httpx.Response) -> SeamError:
    """The error class that the server raised, by its code."""
    try:
        problem = response.json()
        return _ERRORS.get(problem["code"], SeamError)(str(problem["detail"]), fix=str(problem.get("fix", "")), status=response.status_code)
    except (ValueError, KeyError, TypeError):
        return SeamError(
            f"HTTP {response.status_code} without a problem document.", fix="Is this the address of a Seam?", status=response.status_code
        )
