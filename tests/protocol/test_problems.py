"""The table of problems: complete, sane over HTTP, and the same after a trip as a document."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tarnlog.protocol.problems import CODES, TYPE_PREFIX, Kind, ProblemError, from_document

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for part in ("client/src", "service/src") for path in (ROOT / part).rglob("*.py"))
STATUSES: dict[Kind, set[int]] = {
    Kind.INVALID: {400, 405, 406, 413, 415, 422, 431},
    Kind.NOT_FOUND: {404},
    Kind.GONE: {410},
    Kind.DENIED: {401, 403},
    Kind.CONFLICT: {409},
    Kind.UNAVAILABLE: {408, 429, 503},
    Kind.CORRUPT: {500},
    Kind.INTERNAL: {500},
}


def _texts(tree: ast.AST) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _raised(tree: ast.AST) -> set[str]:
    """First arguments of every ProblemError("slug", ...) call."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            first = node.args[0]
            if name == "ProblemError" and isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.add(first.value)
    return found


def test_every_slug_in_the_source_is_in_the_table() -> None:
    raised = {slug for path in SOURCES for slug in _raised(ast.parse(path.read_text()))}
    assert raised - CODES.keys() == set()
    assert "commit-invalid" in raised, "the search finds what it looks for"


def test_every_code_is_used_somewhere() -> None:
    table = ROOT / "client/src/tarnlog/protocol/problems.py"
    used = {text for path in SOURCES if path != table for text in _texts(ast.parse(path.read_text()))}
    assert {slug for slug in CODES if slug not in used} - EDGE == set()


EDGE = {
    "bad-request",
    "filter-invalid",
    "foreign-writer-detected",
    "forbidden",
    "internal-error",
    "method-not-allowed",
    "not-acceptable",
    "not-found",
    "not-ready",
    "request-too-large",
    "unauthenticated",
    "unsupported-encoding",
}
"""Codes of the layers around the rules (HTTP, scans, field tables); a client knows them before a service uses them."""


@pytest.mark.parametrize("slug", CODES)
def test_a_code_is_sane(slug: str) -> None:
    code = CODES[slug]
    assert code.slug == slug
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", slug)
    assert code.status in STATUSES[code.kind]
    assert code.title
    assert code.title[0].isupper()
    assert not code.title.endswith(".")


def test_every_kind_is_in_use() -> None:
    assert {code.kind for code in CODES.values()} == set(Kind)


def test_titles_are_distinct_enough_to_tell_problems_apart() -> None:
    pairs = [(code.title, code.status) for code in CODES.values()]
    assert len(pairs) == len(set(pairs))


@pytest.mark.parametrize("slug", CODES)
def test_a_problem_survives_the_wire(slug: str) -> None:
    problem = ProblemError(slug, "do this", retry_after=2.5, version=7, errors=[{"pointer": "/x", "message": "m"}])
    document = problem.document()
    assert document["type"] == TYPE_PREFIX + slug
    assert document["status"] == CODES[slug].status
    again = from_document(CODES[slug].status, document, retry_after=2.5)
    assert (again.slug, again.detail, again.fields, again.retry_after) == (
        slug,
        "do this",
        {"version": 7, "errors": [{"pointer": "/x", "message": "m"}]},
        2.5,
    )
    assert str(again) == f"{slug}: do this"


@pytest.mark.parametrize(
    "status, kind",
    [
        *((401, Kind.DENIED), (403, Kind.DENIED), (404, Kind.NOT_FOUND), (409, Kind.CONFLICT)),
        *((418, Kind.INVALID), (422, Kind.INVALID), (429, Kind.UNAVAILABLE)),
        *((500, Kind.INTERNAL), (502, Kind.UNAVAILABLE), (503, Kind.UNAVAILABLE), (504, Kind.UNAVAILABLE)),
    ],
)
def test_an_unknown_code_becomes_the_nearest_one_by_status(status: int, kind: Kind) -> None:
    for document in ({}, {"type": "about:blank", "detail": "x"}, {"type": "/problems/from-the-future"}):
        assert from_document(status, document).code.kind is kind


def test_an_unknown_slug_is_a_mistake_in_the_code() -> None:
    with pytest.raises(KeyError):
        ProblemError("no-such-problem", "x")
