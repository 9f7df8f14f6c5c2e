"""The document in the dialect that the bundled Swagger UI reads: OpenAPI 3.0, which has no null type."""

from __future__ import annotations

from typing import Any


def for_swagger(document: dict[str, Any]) -> dict[str, Any]:
    """A copy of an OpenAPI 3.1 document as 3.0, without what 3.0 cannot say. The real one is at /openapi.json."""
    older: dict[str, Any] = _older(document)
    older["openapi"] = "3.0.3"
    older["info"].get("license", {}).pop("identifier", None)
    return older


def _older(node: Any) -> Any:
    if isinstance(node, list):
        return [_older(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: value if key in ("example", "default") else _older(value) for key, value in node.items()}
    options = node.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        rest = [option for option in options if option != {"type": "null"}]
        del node["anyOf"]
        wrapped = (
            rest[0] if len(rest) == 1 and "$ref" not in rest[0] else {"allOf" if len(rest) == 1 else "anyOf": rest}
        )
        node = {**wrapped, **node, "nullable": True}
    if isinstance(node.get("examples"), list):
        node["example"] = node.pop("examples")[0]
    return node
