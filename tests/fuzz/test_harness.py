"""The harness finds what it must: parsers that are broken on purpose do not pass."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests.fuzz import harness
from tests.fuzz.harness import Finding, Target, check, fuzz, packed, replay

SAMPLE = json.dumps({"version": 5, "items": [{"path": "a", "size": 1}, {"path": "b", "size": 2}]}).encode()


def broken_types(data: bytes) -> int:
    """Believes that JSON has the shape it should have."""
    value = json.loads(data)
    return sum(item["size"] for item in value["items"])


def broken_depth(data: bytes) -> int:
    """Recurses as deep as its input says."""

    def depth(at: int) -> int:
        return depth(at + 1) + 1 if data[at : at + 1] == b"[" else 0

    return depth(data.find(b"["))


def broken_loop(data: bytes) -> None:
    """Never ends once a bracket is missing."""
    while data.count(b"{") != data.count(b"}"):
        pass


def broken_quietly(data: bytes) -> None:
    """Hides behind its own error what is no Exception at all."""
    try:
        broken_loop(data)
    except Exception as error:
        raise ValueError("it cannot be read") from error


@pytest.mark.parametrize("parse", [broken_types, broken_depth, broken_loop, broken_quietly])
def test_a_broken_parser_is_found(parse: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "CPU_SECONDS", 0.3)
    target = Target("broken", lambda: [SAMPLE], parse, (ValueError,), "json")  # type: ignore[arg-type]
    with pytest.raises(Finding) as found:
        fuzz(target, seconds=60.0, first_seed=1)
    again = re.search(r"python -m tests\.fuzz\.replay broken '(.*)'", str(found.value))
    assert again is not None
    with pytest.raises(Finding):
        replay(target, again[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_a_parser_that_takes_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "MEMORY_BYTES", 32 * 2**20)

    def greedy(_: bytes) -> int:
        return len(b"x" * (64 * 2**20))

    with pytest.raises(Finding, match="MiB"):
        check(Target("greedy", lambda: [SAMPLE], greedy, ()), b"")


def test_a_sample_that_is_refused_is_an_error_of_the_target() -> None:
    def refuses(_: bytes) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fuzz(Target("refusing", lambda: [SAMPLE], refuses, (ValueError,)), seconds=0.1)


def test_documented_errors_and_values_pass() -> None:
    assert fuzz(Target("sound", lambda: [SAMPLE], json.loads, (ValueError, RecursionError), "json"), seconds=0.5) > 0


def test_an_input_survives_the_way_through_a_finding() -> None:
    seen: list[bytes] = []
    target = Target("any", lambda: [SAMPLE], seen.append, ())
    replay(target, packed(b"\x00\xff'\"" * 50))
    assert seen == [b"\x00\xff'\"" * 50]
