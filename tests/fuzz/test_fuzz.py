"""Every parser of outside bytes on damaged input, for half a second each; for ten minutes each in a long run."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.harness import Target, check, fuzz
from tests.fuzz.request_targets import WITH_BODIES
from tests.fuzz.served import served
from tests.fuzz.targets import ALL

LEDGER = {
    **dict.fromkeys(("manifestsTotal", "manifestsPruned"), 0),
    **dict.fromkeys(("filesTotal", "filesAfterPartitionPruning", "filesAfterDataSkipping", "filesAfterCooldowns"), 3),
}
FOUND: tuple[tuple[str, bytes], ...] = (
    # The client raised AttributeError, TypeError, KeyError, ValidationError and Arrow's own errors for these.
    ("answer-version", b'{"version":1,"timestamp":1,"actions":["x"]}'),
    ("answer-files", b'{"files":1,"next":null}'),
    ("answer-changes", b'{"changes":[1]}'),
    ("answer-skips", b'{"skips":true}'),
    (
        "answer-arrow-metadata",
        json.dumps({"ledger": json.dumps(LEDGER)}).encode(),
    ),
    ("answer-problem", b'{"type":"/problems/commit-not-found","fromVersion":"x"}'),
    # These took seconds of the processor, or ended in RecursionError.
    ("sql-filter", b"id = 1" + b"::int" * 20_000),
    ("sql-filter", b"id" + b".x" * 20_000 + b" = 1"),
    ("sql-filter", b"a in (1" + b"::int::int, 1" * 8_000 + b")"),
)
"""What was found once stays found."""


@pytest.mark.parametrize("target", ALL.values(), ids=ALL)
def test_damaged_input_is_a_value_or_a_documented_error(target: Target) -> None:
    assert fuzz(target) > 0


@pytest.mark.parametrize("name, data", FOUND, ids=[f"{name}-{number}" for number, (name, _) in enumerate(FOUND)])
def test_what_was_found_stays_mended(name: str, data: bytes) -> None:
    check(ALL[name], data)


def test_every_operation_with_a_body_has_a_target() -> None:
    operations = served().api.app.operations
    assert {operation.id for operation in operations if operation.body is not None} == set(WITH_BODIES)
