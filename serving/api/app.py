"""The routes. Each turns a request into one call of the store and its result into JSON; nothing else happens here."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from serving import shown
from serving.api import gauges, metrics, openapi, problems
from serving.api.gate import Gate, is_admin
from serving.api.keys import KeyRing
from serving.api.pool import StorePool
from serving.errors import BadRequest, Forbidden, SeamError, SeamGap, StoreUnavailable, UnknownManifest, UnknownView, ViewNotReady
from serving.question import DEFAULT_ROWS, MOST_ROWS, to_query
from serving.store.records import ManifestId
from views.view import View

VERSION = "1"
_MOST_PARAMETERS = 32

Handler = Callable[[Request], Awaitable[Response]]


class LabelledRoute(Route):
    """A plain route, which costs a request less than the framework's own, and says which one was taken."""

    async def handle(self, scope: Connection, receive: Receive, send: Send) -> None:
        scope["seam_route"] = self.path
        await super().handle(scope, receive, send)


def create_app(
    store: StorePool, keys: KeyRing, views: Sequence[View], *, dev: bool = False, log_all: bool = False, extra: Sequence[Route] = ()
) -> FastAPI:
    """The whole HTTP interface over one line. `dev` adds a page to try it by hand; `extra` routes are for measuring."""
    counters = metrics.RequestMetrics()
    document = openapi.document("Seam", VERSION, views)
    get = ("GET",)
    routes: list[BaseRoute] = [
        LabelledRoute("/v1/views/{view}", _view_route(store, {view.name: view for view in views}), methods=get),
        LabelledRoute("/v1/views", _fixed([shown.view_json(view) for view in views]), methods=get),
        LabelledRoute("/v1/seam", _seam_route(store), methods=get),
        LabelledRoute("/v1/manifests", _manifests_route(store), methods=get),
        LabelledRoute("/v1/manifests/{id}/publish", _publish_route(store), methods=("POST",)),
        LabelledRoute("/healthz", _health_route(store), methods=get),
        LabelledRoute("/metrics", _metrics_route(store, counters), methods=get),
        LabelledRoute("/openapi.json", _fixed(document), methods=get),
        *extra,
    ]
    if dev:
        routes.append(LabelledRoute("/docs", _docs, methods=get))
    app = FastAPI(
        title="Seam", routes=routes, openapi_url=None, docs_url=None, redoc_url=None, lifespan=store.lifespan, redirect_slashes=False
    )
    app.add_exception_handler(HTTPException, _no_such_route)
    open_paths = {"/healthz", *(route.path for route in extra), *(("/docs", "/openapi.json") if dev else ())}
    app.add_middleware(Gate, keys=keys, metrics=counters, open_paths=open_paths, clock=time.perf_counter, log_all=log_all)
    return app


def json_response(document: Any, status: int = 200) -> Response:
    try:
        body = orjson.dumps(document)
    except TypeError:  # a sum beyond 64 bits, which orjson does not write
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, problems.NOT_STORED, "application/json")


def _fixed(document: Any) -> Handler:
    async def route(request: Request) -> Response:
        return json_response(document)

    return route


def _view_route(store: StorePool, views: dict[str, View]) -> Handler:
    async def route(request: Request) -> Response:
        name = request.path_params["view"]
        view = views.get(name)
        if view is None:
            raise UnknownView(f"There is no view of that name, only: {', '.join(sorted(views))}.", fix="GET /v1/views describes them.")
        query = to_query(view, _parameters(request.scope["query_string"]), default_limit=DEFAULT_ROWS, most_rows=MOST_ROWS)
        return json_response((await store.answer(view, query)).to_json())

    return route


def _parameters(query_string: bytes) -> list[tuple[str, str]]:
    """The fields of a query string as they were sent; strict, where the library's parser guesses, and three times as fast."""
    fields = query_string.split(b"&") if query_string else []
    try:
        if len(fields) > _MOST_PARAMETERS:
            raise ValueError(len(fields))
        return [(_text(name), _text(value)) for name, _, value in (field.partition(b"=") for field in fields) if name or value]
    except ValueError:  # not UTF-8, or too many fields
        raise BadRequest(
            "The query string cannot be read.", fix=f"Send at most {_MOST_PARAMETERS} fields in UTF-8, percent-encoded."
        ) from None


def _text(sent: bytes) -> str:
    if b"%" in sent or b"+" in sent:
        sent = unquote_to_bytes(sent.replace(b"+", b" "))
    return sent.decode()


def _seam_route(store: StorePool) -> Handler:
    async def route(request: Request) -> Response:
        return json_response((await store.seam()).to_json())

    return route


def _manifests_route(store: StorePool) -> Handler:
    async def route(request: Request) -> Response:
        return json_response([shown.manifest_json(manifest) for manifest in await store.manifests()])

    return route


def _publish_route(store: StorePool) -> Handler:
    async def route(request: Request) -> Response:
        if not is_admin(request.scope):
            raise Forbidden("This key may only read.", fix="Send the key of admin.key.")
        text = request.path_params["id"]
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise UnknownManifest("A manifest's id is a whole number.", fix="GET /v1/manifests lists them.")
        try:
            return json_response(shown.manifest_json(await store.publish(ManifestId(int(text)))))
        except (ViewNotReady, SeamGap) as error:
            # Not a matter of waiting, as it is for a reader: that manifest cannot serve what is served now.
            return problems.of_error(error, status=409)

    return route


def _health_route(store: StorePool) -> Handler:
    async def route(request: Request) -> Response:
        if not await store.is_answering():
            return problems.of_error(StoreUnavailable("The database does not answer."))
        return json_response({"status": "ok"})

    return route


def _metrics_route(store: StorePool, counters: metrics.RequestMetrics) -> Handler:
    async def route(request: Request) -> Response:
        try:
            state = await store.seam()
        except SeamError:
            state = None
        return Response(counters.render(gauges.of_state(state)), media_type=metrics.CONTENT_TYPE)

    return route


async def _docs(request: Request) -> Response:
    return get_swagger_ui_html(openapi_url="/openapi.json", title="Seam")


async def _no_such_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    what = "This route does not take that method." if status == 405 else "There is no such route."
    return problems.problem(
        status, "NoSuchRoute", "The request names nothing here.", what, "GET /openapi.json lists the routes.", headers=headers
    )
