"""Errors as RFC 9457 problem documents. What a response says comes from the error family; never a stack, a path or SQL."""

from __future__ import annotations

import orjson
from starlette.responses import Response

from serving import errors
from serving.errors import SeamError

_STATUS: dict[type[SeamError], int] = {
    errors.BadRequest: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.UnknownView: 404,
    errors.UnknownManifest: 404,
    errors.NightlyLocked: 409,
    errors.ChecksFailed: 409,
    errors.ViewNotReady: 503,
    errors.SeamGap: 503,
    errors.StoreUnavailable: 503,
    errors.UnknownLine: 503,
}
_RETRY_AFTER_SECONDS = 1
NOT_STORED = {"Cache-Control": "no-store"}
"""Proxies do not know that the key makes an answer private."""
_SAID_INSTEAD: dict[type[SeamError], str] = {
    errors.StoreUnavailable: "The database does not answer.",
    errors.UnknownLine: "The line is not made yet.",
}
"""In place of the database's own words, which name hosts, files and tables."""


def problem(
    status: int, code: str, title: str, detail: str, fix: str = "", incident: str = "", headers: dict[str, str] | None = None
) -> Response:
    document: dict[str, object] = {
        "type": f"urn:seam:error:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "fix": fix,
    }
    if incident and status >= 500:
        document["incident"] = incident
    return Response(orjson.dumps(document), status, {**NOT_STORED, **(headers or {})}, "application/problem+json")


def of_error(error: SeamError, incident: str = "", *, status: int | None = None) -> Response:
    """The problem document of one of our own errors. What may pass says when to come back."""
    status = status or _STATUS.get(type(error), 500)
    title = (type(error).__doc__ or type(error).__name__).splitlines()[0]
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = "X-API-Key"
    if status == 503 and not isinstance(error, errors.SeamGap):  # a hole does not close by waiting
        headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    if type(error) in _SAID_INSTEAD:
        return problem(
            status, error.code, title, _SAID_INSTEAD[type(error)], "Try again; `seam status` tells the operator more.", incident, headers
        )
    return problem(status, error.code, title, error.what, error.fix, incident, headers)


def unexpected(incident: str) -> Response:
    """A failure we did not foresee: the log has it under this incident, the response does not."""
    return problem(
        500,
        "Unexpected",
        "Something failed that should not have.",
        "The request was not answered.",
        "Tell the operator the incident.",
        incident,
    )
