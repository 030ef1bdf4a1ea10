"""What every request passes before a route sees it: size limits, the key, metrics, the log, and a last net for failures.

Pure ASGI, because the framework's own middleware costs more than a point read.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from serving.api import problems
from serving.api.keys import KeyRing, Scope
from serving.api.metrics import RequestMetrics
from serving.errors import SeamError, Unauthorized

MOST_TARGET_BYTES = 8 << 10
MOST_BODY_BYTES = 64 << 10
_log = logging.getLogger("seam.api")


class Gate:
    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: KeyRing,
        metrics: RequestMetrics,
        open_paths: Collection[str],
        clock: Callable[[], float],
        log_all: bool,
    ) -> None:
        self._app, self._keys, self._metrics, self._open_paths, self._clock = app, keys, metrics, frozenset(open_paths), clock
        self._log_all = log_all

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = self._clock(), 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        incident = ""
        try:
            refusal = self._refusal(scope)
            await (refusal or self._app)(scope, receive, watch)
        except Exception as error:
            incident = secrets.token_hex(8)
            response = _response(error, incident)
            if not status:
                await response(scope, receive, watch)
        self._note(scope, status, self._clock() - started, incident)

    def _refusal(self, scope: Connection) -> ASGIApp | None:
        """The response to a request that no route may see, if it is one."""
        if len(scope["query_string"]) + len(scope["raw_path"]) > MOST_TARGET_BYTES:
            return problems.problem(
                414, "TooLarge", "The request is too large.", "The URL is too long.", f"At most {MOST_TARGET_BYTES} bytes."
            )
        presented: bytes | None = None
        several = False
        for name, value in scope["headers"]:
            if name == b"x-api-key":
                several = presented is not None
                presented = value
            elif (name == b"content-length" and (not value.isdigit() or int(value[:20]) > MOST_BODY_BYTES)) or name == b"transfer-encoding":
                return problems.problem(
                    413, "TooLarge", "The request is too large.", "The body is too long.", "Send none.", headers={"Connection": "close"}
                )
        if scope["path"] in self._open_paths:
            return None
        granted = self._keys.scope_of(presented) if presented is not None and not several else None
        if granted is None:
            what = "There is no X-API-Key header." if presented is None else "The API key is not known here."
            return problems.of_error(Unauthorized(what, fix="Send the key of the secrets folder's api.key in the header X-API-Key."))
        scope["seam_scope"] = granted
        return None

    def _note(self, scope: Connection, status: int, seconds: float, incident: str) -> None:
        route = scope.get("seam_route", "other")
        method = scope["method"] if scope["method"] in ("GET", "POST") else "other"
        self._metrics.observe(method, route, status, seconds)
        if status >= 400 or self._log_all or method == "POST":
            # Never the query string (it holds account ids) nor a header; %r keeps a forged line break inside the line.
            level = logging.WARNING if status >= 500 else logging.INFO
            _log.log(
                level,
                "request method=%s path=%r status=%d ms=%.1f incident=%s",
                method,
                scope["path"][:200],
                status,
                seconds * 1e3,
                incident or "-",
            )


def _response(error: Exception, incident: str) -> Response:
    """The problem document of a failure. Ours to mend goes to the log under its incident; the asker's own mistake does not."""
    if isinstance(error, SeamError):
        response = problems.of_error(error, incident)
        if response.status_code >= 500:
            _log.warning("request_failed incident=%s code=%s what=%r", incident, error.code, str(error))
        return response
    _log.error("request_failed incident=%s error=%r", incident, error, exc_info=error)
    return problems.unexpected(incident)


def is_admin(scope: Connection) -> bool:
    return scope.get("seam_scope") is Scope.ADMIN
