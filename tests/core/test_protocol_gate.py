"""Which tables may be read and written, and that a refusal names what is lacking."""

from __future__ import annotations

import pytest

from tarnlog.protocol.actions import Protocol
from tarnlog_server.core.protocol_gate import NEW_TABLE, unsupported_for_reading, unsupported_for_writing
from tests.core.making import protocol

READER = (
    "skippedFiles",
    "extendedMetadata",
    "footerOffsets",
    "multiPartCheckpoint",
    "schemaDeduplication",
    "avroState",
)


@pytest.mark.parametrize(
    "needs, reading, writing",
    [
        (protocol(1, 1), None, None),
        (protocol(4, 4), None, None),
        (protocol(4, 4, reader_features=READER, writer_features=READER), None, None),
        (protocol(2, 2, writer_features=("checkpoint", "optimizeWrite")), None, None),
        (protocol(5, 4), "reader version 5", "reader version 5"),
        (protocol(4, 5), None, "writer version 5"),
        (protocol(4, 4, reader_features=("teleport",)), "reader feature teleport", "reader feature teleport"),
        (protocol(4, 4, writer_features=("b", "a")), None, "writer feature a, b"),
        (protocol(4, 4, reader_features=("checkpoint",)), "reader feature checkpoint", "reader feature checkpoint"),
        (protocol(4, 4, reader_features=()), None, None),
    ],
)
def test_the_gate(needs: Protocol, reading: str | None, writing: str | None) -> None:
    for found, expected in ((unsupported_for_reading(needs), reading), (unsupported_for_writing(needs), writing)):
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert found.startswith(expected)


def test_new_tables_are_four_four_without_features() -> None:
    assert protocol(4, 4) == NEW_TABLE
    assert unsupported_for_writing(NEW_TABLE) is None
