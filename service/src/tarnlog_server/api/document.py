"""The OpenAPI document, made from the operations' declarations and the structs they speak."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from tarnlog.protocol.problems import CODES, TYPE_PREFIX
from tarnlog_server.api.operation import Operation

REF = "#/components/schemas/{name}"
TABLE_PARAMETER = {
    "type": "string",
    "pattern": "^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}\\.[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$",
    "example": "sales.orders",
}
_ANYWHERE = ("request-invalid", "unauthenticated", "forbidden", "host-not-allowed", "internal-error")
_BODIES = ("bad-request", "unsupported-encoding", "request-too-large", "too-many-waiting")
_STORAGE = ("storage-unavailable", "storage-refused", "shutting-down")
_OF_TABLES = ("table-name-invalid", "table-not-found", "log-corrupt", "protocol-not-supported")
PROBLEM_SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "description": "A problem document (RFC 9457). The slug at the end of `type` is stable; `detail` says what to do.",
    "type": "object",
    "properties": {
        "type": {"type": "string", "example": "/problems/table-not-found"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"pointer": {"type": "string"}, "message": {"type": "string"}},
                "required": ["pointer", "message"],
            },
        },
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": True,
}


def extra_of(operation: Operation) -> dict[str, Any]:
    """An operation's part of the document, beyond what FastAPI writes by itself."""
    extra: dict[str, Any] = {"parameters": _parameters(operation), "responses": _responses(operation)}
    if operation.body is not None:
        content = {"schema": _schema(operation.body), "example": operation.example}
        extra["requestBody"] = {
            "required": not operation.body_optional,
            "content": {"application/json": content},
        }
    if operation.scope is None:
        extra["security"] = []
    return {key: value for key, value in extra.items() if value or key == "security"}


def completed(document: dict[str, Any], operations: list[Operation]) -> dict[str, Any]:
    """The document with its schemas and its security scheme."""
    kinds: list[Any] = []
    for operation in operations:
        kinds += [operation.body] if operation.body is not None else []
        kinds += [result.type for result in operation.results.values() if result.type is not None]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=REF)
    schemas["Problem"] = PROBLEM_SCHEMA
    _exactly_one_action(schemas["ActionLine"])
    document["components"] = {
        "schemas": dict(sorted(schemas.items())),
        "securitySchemes": {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "description": "An API key, `id.secret`. Needed where keys are set.",
            }
        },
    }
    document["security"] = [{"key": []}, {}]
    for operation in operations:
        path = document["paths"][operation.path.replace(":path", "")][operation.method.lower()]
        # What FastAPI adds for a validation that it does not do here.
        path["responses"] = {
            str(status): answer for status, answer in sorted(_responses(operation).items(), key=lambda item: item[0])
        }
    return document


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if "{table}" in operation.path:
        found.append({"name": "table", "in": "path", "required": True, "schema": TABLE_PARAMETER})
    for name, schema in operation.parameters.items():
        where, _, header = name.partition(":")
        place = {"name": header, "in": "header"} if where == "header" else {"name": name, "in": "path"}
        found.append({**place, "required": where != "header", "schema": schema})
    if operation.query is not None:
        found += _query(operation.query)
    return found


def _query(kind: type[Struct]) -> list[dict[str, Any]]:
    described = msgspec.json.schema(kind, ref_template=REF)
    properties = described["$defs"][kind.__name__]["properties"]
    found = []
    for name, schema in properties.items():
        options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
        schema = {**options[0], **({"default": schema["default"]} if schema.get("default") is not None else {})}
        description = schema.pop("description", "")
        found.append({"name": name, "in": "query", "required": False, "description": description, "schema": schema})
    return found


def _responses(operation: Operation) -> dict[int, dict[str, Any]]:
    answers: dict[int, dict[str, Any]] = {}
    for status, result in operation.results.items():
        answers[status] = {"description": result.description}
        if result.type is not None:
            content = {"schema": _schema(result.type), "example": result.example}
            answers[status]["content"] = {result.media: content}
            if result.or_media is not None:
                answers[status]["content"][result.or_media] = {"schema": {"type": "string", "format": "binary"}}
        elif result.media != "application/json":
            answers[status]["content"] = {result.media: {"schema": {"type": "string"}}}
    by_status: dict[int, list[str]] = {}
    for slug in dict.fromkeys((*operation.problems, *_implied(operation))):
        by_status.setdefault(CODES[slug].status, []).append(slug)
    for status, slugs in by_status.items():
        lines = [f"`{slug}`: {CODES[slug].title}" for slug in slugs]
        example = {"type": TYPE_PREFIX + slugs[0], "title": CODES[slugs[0]].title, "status": status, "detail": "..."}
        answers[status] = {
            "description": "\n\n".join(lines),
            "content": {
                "application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}, "example": example}
            },
        }
    return answers


def _implied(operation: Operation) -> tuple[str, ...]:
    slugs: tuple[str, ...] = _ANYWHERE if operation.scope is not None else ("request-invalid", "internal-error")
    if operation.body is not None:
        slugs += _BODIES
    if operation.path.startswith("/v1/tables") or operation.body is not None:
        slugs += _STORAGE
    elif operation.scope is not None:
        slugs += ("shutting-down",)
    return slugs + _OF_TABLES if "{table}" in operation.path else slugs


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=REF)
    return schema


def _exactly_one_action(schema: dict[str, Any]) -> None:
    schema["minProperties"] = 1
    schema["maxProperties"] = 1
