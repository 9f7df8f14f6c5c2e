"""Schemas as people type them: `id long not null, tags array<string>, at struct<x: int>`, or JSON, or a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tarnlog.protocol.schema import Schema, SchemaError, parse_schema, parse_schema_string

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*')|([A-Za-z_][\w.-]*)|(\d+)|([<>(),:]))", re.ASCII)
_ALIASES = {"bool": "boolean", "real": "float", "numeric": "decimal", "dec": "decimal"}
_MAX_DEPTH = 50


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"cannot read the schema at {text[position : position + 20].strip()!r}")
            self.tokens.append(match.group().strip())
            position = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        if not token:
            raise ValueError("the schema ends too early: write columns as `name type`, separated by commas")
        self.at += 1
        return token

    def expect(self, wanted: str) -> None:
        found = self.peek()
        if found != wanted:
            raise ValueError(f"the schema needs {wanted!r} where it has {found or 'its end'!r}")
        self.at += 1

    def skip(self, *words: str) -> bool:
        if tuple(token.lower() for token in self.tokens[self.at : self.at + len(words)]) != words:
            return False
        self.at += len(words)
        return True

    def fields(self, end: str, depth: int) -> list[dict[str, Any]]:
        fields = [self.field(depth)]
        while self.skip(","):
            fields.append(self.field(depth))
        if self.peek() != end:
            raise ValueError(f"the schema has {self.peek() or 'its end'!r} where a comma or its end was expected")
        return fields

    def field(self, depth: int) -> dict[str, Any]:
        name = self.take()
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        self.skip(":")
        data_type = self.type(depth)
        nullable = not self.skip("not", "null")
        metadata: dict[str, Any] = {}
        if self.skip("comment"):
            metadata["comment"] = re.sub(r"\\(.)", r"\1", self.take()[1:-1])
        return {"name": name, "type": data_type, "nullable": nullable, "metadata": metadata}

    def type(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError(f"the schema is nested deeper than {_MAX_DEPTH} levels")
        name = self.take().lower()
        if name in ("array", "map", "struct"):
            self.expect("<")
            result = self.nested(name, depth + 1)
            self.expect(">")
            return result
        name = _ALIASES.get(name, name)
        if not self.skip("("):
            return name
        arguments = [self.take()]
        while self.skip(","):
            arguments.append(self.take())
        self.expect(")")
        return f"{name}({','.join(arguments)})"

    def nested(self, kind: str, depth: int) -> dict[str, Any]:
        if kind == "struct":
            return {"type": "struct", "fields": self.fields(">", depth)}
        first = self.type(depth)
        if kind == "array":
            return {"type": "array", "elementType": first, "containsNull": True}
        self.expect(",")
        return {"type": "map", "keyType": first, "valueType": self.type(depth), "valueContainsNull": True}


def parse_columns(text: str) -> Schema:
    """Columns as `name type` with commas between; ValueError says where it stops making sense."""
    reader = _Reader(text)
    return parse_schema({"type": "struct", "fields": reader.fields("", 0)})


def read_schema(text: str) -> Schema:
    """A schema from JSON, from columns, or from a file that holds either; ValueError says what is wrong."""
    content = text.strip()
    if not content.startswith("{"):
        content = _file_content(content)
    return parse_schema_string(content) if content.startswith("{") else parse_columns(content)


def _file_content(text: str) -> str:
    path = Path(text)
    try:
        if path.is_file():
            return path.read_text("utf-8").strip()
    except OSError:
        return text  # too long for a file name, so it is no file name
    if " " not in text and ("/" in text or path.suffix):
        raise SchemaError("", f"there is no file {text!r}")
    return text
