"""When a state is written and which kind it is, as tables of cases."""

from __future__ import annotations

import pytest

from tarnlog.protocol.actions import Protocol
from tarnlog_server.core.protocol_gate import unsupported_for_writing
from tarnlog_server.core.state_plan import (
    MAX_AGE_MS,
    MAX_BYTES_SINCE,
    AvroBase,
    Layout,
    Reason,
    Since,
    StateSettings,
    compaction,
    due,
    layout,
    raised_protocol,
    state_settings,
)
from tests.core.making import protocol

DEFAULTS = StateSettings()
OFF = StateSettings(enabled=False)


@pytest.mark.parametrize(
    "since,settings,forced,reason",
    [
        (Since(0), DEFAULTS, False, None),
        (Since(0), DEFAULTS, True, Reason.FORCED),
        (Since(9), DEFAULTS, False, None),
        (Since(10), DEFAULTS, False, Reason.INTERVAL),
        (Since(11), DEFAULTS, False, Reason.INTERVAL),
        (Since(1), StateSettings(interval=1), False, Reason.INTERVAL),
        (Since(1, bytes=MAX_BYTES_SINCE - 1), DEFAULTS, False, None),
        (Since(1, bytes=MAX_BYTES_SINCE), DEFAULTS, False, Reason.SIZE),
        (Since(1, age_ms=MAX_AGE_MS - 1), DEFAULTS, False, None),
        (Since(1, age_ms=MAX_AGE_MS), DEFAULTS, False, Reason.AGE),
        (Since(0, age_ms=MAX_AGE_MS), DEFAULTS, False, None),
        (Since(1, operations=("WRITE", "OPTIMIZE")), DEFAULTS, False, Reason.MERGE),
        (Since(1, operations=("merge",)), DEFAULTS, False, Reason.MERGE),
        (Since(1, operations=("MERGE",)), StateSettings(after_merge=False), False, None),
        (Since(1, operations=("MERGE SOMETHING",)), DEFAULTS, False, None),
        (Since(1, removes=5), StateSettings(large_remove_threshold=5), False, None),
        (Since(1, removes=6), StateSettings(large_remove_threshold=5), False, Reason.LARGE_REMOVE),
        (Since(99, bytes=MAX_BYTES_SINCE, age_ms=MAX_AGE_MS, operations=("MERGE",)), OFF, False, None),
        (Since(1), OFF, True, Reason.FORCED),
    ],
)
def test_due(since: Since, settings: StateSettings, forced: bool, reason: Reason | None) -> None:
    assert due(since, settings, forced=forced) is reason


@pytest.mark.parametrize(
    "base,since,settings,forced,reason",
    [
        (None, Since(10), DEFAULTS, False, Reason.NO_BASE),
        (AvroBase(100, 0, 1), Since(10), DEFAULTS, False, None),
        (AvroBase(100, 0, 1), Since(10), DEFAULTS, True, Reason.FORCED),
        (AvroBase(100, 10, 1), Since(10), DEFAULTS, False, None),
        (AvroBase(100, 11, 1), Since(10), DEFAULTS, False, Reason.TOMBSTONES),
        (AvroBase(0, 0, 0), Since(10), DEFAULTS, False, None),
        (AvroBase(0, 1, 1), Since(10), DEFAULTS, False, Reason.TOMBSTONES),
        (AvroBase(100, 1, 1), Since(10), StateSettings(tombstone_threshold=0.0), False, Reason.TOMBSTONES),
        (AvroBase(100, 0, 20), Since(10), DEFAULTS, False, None),
        (AvroBase(100, 0, 21), Since(10), DEFAULTS, False, Reason.MANIFESTS),
        (AvroBase(1_000_010, 0, 21), Since(10), DEFAULTS, False, None),
        (AvroBase(1_000_000, 0, 41), Since(10), DEFAULTS, False, Reason.MANIFESTS),
        (AvroBase(100, 0, 1), Since(1, operations=("OPTIMIZE",)), DEFAULTS, False, Reason.MERGE),
        (AvroBase(100, 0, 1), Since(1, operations=("OPTIMIZE",)), StateSettings(after_merge=False), False, None),
        (AvroBase(100, 0, 1), Since(1, removes=9), StateSettings(large_remove_threshold=8), False, Reason.LARGE_REMOVE),
    ],
)
def test_compaction(
    base: AvroBase | None, since: Since, settings: StateSettings, forced: bool, reason: Reason | None
) -> None:
    assert compaction(base, since, settings, forced=forced) is reason


@pytest.mark.parametrize(
    "state_format,actions,expected",
    [
        ("avro", 10**7, Layout("avro-state")),
        ("parquet", 10**7, Layout("parquet")),
        ("json", 0, Layout("json")),
        ("json", 100_000, Layout("json")),
        ("json", 100_001, Layout("json-multipart", 2)),
        ("json", 250_000, Layout("json-multipart", 3)),
    ],
)
def test_layout(state_format: str, actions: int, expected: Layout) -> None:
    assert layout(actions, StateSettings(format=state_format)) == expected


@pytest.mark.parametrize(
    "before,state_format,after",
    [
        (protocol(4, 4), "avro", None),
        (protocol(2, 2), "json", None),
        (protocol(2, 2), "parquet", None),
        (protocol(1, 1), "avro", protocol(4, 4)),
        (protocol(4, 3), "avro", protocol(4, 4)),
        (
            protocol(3, 3, reader_features=("skippedFiles",), writer_features=("avroState",)),
            "avro",
            protocol(4, 4, reader_features=("skippedFiles", "avroState"), writer_features=("avroState",)),
        ),
    ],
)
def test_protocol_before_the_first_avro_state(before: Protocol, state_format: str, after: Protocol | None) -> None:
    assert raised_protocol(before, state_format) == after
    assert after is None or unsupported_for_writing(after) is None


def test_settings_come_from_the_table_then_the_service_then_the_defaults() -> None:
    assert state_settings({}) == StateSettings()
    table = {
        "checkpoint.interval": "3",
        "spark.indextables.state.format": "json",
        "state.compaction.afterMerge": "false",
    }
    service = {"checkpoint.interval": "7", "state.compaction.maxManifests": "5"}
    expected = StateSettings(interval=3, format="json", after_merge=False, max_manifests=5)
    assert state_settings(table, service) == expected
