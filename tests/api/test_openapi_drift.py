"""openapi.yaml is what the service says of itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from tarnlog_server.openapi import as_yaml, document

COMMITTED = Path(__file__).parents[2] / "openapi.yaml"


def test_the_committed_document_is_current() -> None:
    assert COMMITTED.read_text() == as_yaml(), "run ./dev openapi and commit the file"


def test_the_yaml_says_what_the_document_says() -> None:
    assert yaml.safe_load(as_yaml()) == msgspec.json.decode(msgspec.json.encode(document()))
