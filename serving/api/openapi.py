"""The OpenAPI document, derived from the view declarations: each view is a path with its own parameters and row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serving.question import DEFAULT_ROWS, MOST_ROWS
from views.event import EVENT_FIELDS, FieldKind
from views.view import View

Schema = dict[str, Any]

_INSTANT: Schema = {"type": "string", "format": "date-time"}
_WHOLE: Schema = {"type": "integer"}
_VECTOR: Schema = {"type": "object", "additionalProperties": _WHOLE, "description": "Partition -> next offset.", "example": {"0": 4711}}
_FIELDS = {field.name: field for field in EVENT_FIELDS}


def _object(properties: Schema, **more: object) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), **more}


def _components() -> Schema:
    problem = _object(
        {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": _WHOLE,
            "detail": {"type": "string"},
            "code": {"type": "string"},
        }
    )
    problem["properties"]["fix"] = {"type": "string", "description": "What helps."}
    problem["properties"]["incident"] = {"type": "string", "description": "Names the line in the server's log."}
    return {
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
        "schemas": {
            "Provenance": _object(
                {
                    "manifest": _WHOLE,
                    "cut": _VECTOR,
                    "frontier": _VECTOR,
                    "from_batch": {**_WHOLE, "description": "Events counted by the batch side."},
                    "from_speed": {**_WHOLE, "description": "Events counted by the speed side."},
                    "stale_seconds": {"type": ["number", "null"], "description": "Age of the speed layer's last sign of life."},
                }
            ),
            "Manifest": _object(
                {"id": _WHOLE, "generation": _WHOLE, "cut": _VECTOR, "published_at": _INSTANT, "current": {"type": "boolean"}}
            ),
            "Problem": problem,
        },
    }


def document(title: str, version: str, views: Sequence[View]) -> Schema:
    paths: Schema = {
        "/v1/views": {"get": _operation("views", "The views that can be asked, and how.", {"type": "array", "items": {"type": "object"}})},
        **{f"/v1/views/{view.name}": {"get": _view_operation(view)} for view in views},
        "/v1/seam": {
            "get": _operation(
                "seam", "Where the seam is: manifest, cut, frontier and the speed layer's last sign of life.", {"type": "object"}
            )
        },
        "/v1/manifests": {
            "get": _operation(
                "manifests", "What was published and can be rolled back to.", {"type": "array", "items": _reference("Manifest")}
            )
        },
        "/v1/manifests/{id}/publish": {"post": _publish_operation()},
        "/healthz": {"get": {**_operation("healthz", "200 while the store answers, else 503.", {"type": "object"}), "security": []}},
        "/metrics": {"get": {**_operation("metrics", "Counters in the Prometheus text format.", None)}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "security": [{"key": []}],
        "paths": paths,
        "components": _components(),
    }


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(name: str, summary: str, answer: Schema | None) -> Schema:
    content = {"application/json": {"schema": answer}} if answer is not None else {"text/plain": {"schema": {"type": "string"}}}
    failed = {"description": "See `code` and `fix`.", "content": {"application/problem+json": {"schema": _reference("Problem")}}}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "OK", "content": content}, "4XX": failed, "5XX": failed},
    }


def _publish_operation() -> Schema:
    operation = _operation("publish", "Move the pointer to another retained manifest. Needs the admin key.", _reference("Manifest"))
    operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": _WHOLE}]
    return operation


def _view_operation(view: View) -> Schema:
    row = _object(
        {
            **{field: {"type": "string"} for field in view.key},
            "window_start": _INSTANT,
            "window_end": _INSTANT,
            **{measure: {"type": ["number", "null"]} for measure in view.measures},
            "id_checksum": _WHOLE,
            "final": {"type": "boolean"},
        }
    )
    answer = _object(
        {"rows": {"type": "array", "items": row}, "provenance": _reference("Provenance"), "next": {"type": ["string", "null"]}}
    )
    operation = _operation(f"view_{view.name}", f"Merged rows of {view.name}: each event counts once, on one side of the seam.", answer)
    operation["parameters"] = [*(_key_parameter(field) for field in view.key), *_OPTIONS]
    return operation


def _key_parameter(name: str) -> Schema:
    field = _FIELDS[name]
    schema: Schema = {"type": "string"}
    schema |= {"pattern": f"^({field.pattern})$"} if field.kind is FieldKind.CODE else {"minLength": 1, "maxLength": field.longest}
    return {"name": name, "in": "query", "schema": schema, "description": f"Only rows with this {name}."}


def _option(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": description}


_OPTIONS = (
    _option("from", _INSTANT, "Only windows that start at or after this instant."),
    _option("to", _INSTANT, "Only windows that start before this instant."),
    _option("total", {"type": "boolean"}, "Fold all windows of a key into one row."),
    _option("as_of", _WHOLE, "The rows at this manifest's cut."),
    _option("limit", {**_WHOLE, "minimum": 1, "maximum": MOST_ROWS, "default": DEFAULT_ROWS}, "Most rows of one page."),
    _option("cursor", {"type": "string"}, "`next` of the page before; each page is exact at the frontier it states."),
)
