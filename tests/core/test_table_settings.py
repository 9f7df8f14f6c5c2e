"""Table properties: defaults, every spelling, every refusal, and that what is accepted can be read back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.core import table_settings
from tarnlog_server.core.setting_values import DAY, HOUR
from tarnlog_server.core.table_settings import (
    ALIASES,
    MAX_VALUE_BYTES,
    PREFIX,
    SETTINGS,
    SUPERSEDED,
    PropertyError,
    check_defaults,
    check_properties,
    notes_on,
    own_value,
    setting,
)

DEFAULTS: dict[str, object] = {
    "checkpoint.enabled": True,
    "checkpoint.interval": 10,
    "checkpoint.parallelism": 4,
    "checkpoint.read.timeoutSeconds": 30,
    "checkpoint.compression": "snappy",
    "checkpoint.maxFileSize": 134217728,
    "checkpoint.actionsPerPart": 100000,
    "checkpointRetention.duration": 7200000,
    "logRetention.duration": 2592000000,
    "deletedFileRetention.duration": 604800000,
    "cleanup.enabled": True,
    "cleanup.failurePolicy": "continue",
    "transaction.compression.enabled": True,
    "transaction.retry.maxAttempts": 10,
    "transaction.retry.baseDelayMs": 100,
    "transaction.retry.maxDelayMs": 5000,
    "state.format": "avro",
    "state.compression": "zstd",
    "state.compressionLevel": 3,
    "state.entriesPerManifest": 50000,
    "state.read.parallelism": 8,
    "state.schema.renormalizeThreshold": 5,
    "state.compaction.tombstoneThreshold": 0.10,
    "state.compaction.maxManifests": 20,
    "state.compaction.largeRemoveThreshold": 2147483647,
    "state.compaction.afterMerge": True,
    "state.retention.versions": 2,
    "state.retention.hours": 168,
    "state.gc.minManifestAgeHours": 1,
    "stats.truncation.maxLength": 32,
    "cache.expirationSeconds": 300,
    "cache.maxVersions": 1000,
    "commit.coalesce": True,
    "commit.dedupe.duration": 86400000,
    "commit.maxBytes": 67108864,
    "skip.cooldownHours": 24,
}


def test_the_table_of_settings_is_complete() -> None:
    assert {name: known.default for name, known in SETTINGS.items()} == DEFAULTS
    assert all(setting({}, name) == value for name, value in DEFAULTS.items())
    assert all(known.meaning for known in SETTINGS.values())


@pytest.mark.parametrize("name", SETTINGS)
def test_every_default_is_accepted_as_its_own_text(name: str) -> None:
    text = str(SETTINGS[name].default)
    for key in (name, PREFIX + name):
        check_properties({key: text})
        value = setting({key: text}, name)
        assert value == SETTINGS[name].default
        assert type(value) is type(SETTINGS[name].default)


READ: list[tuple[str, str, object]] = [
    ("commit.coalesce", "false", False),
    ("commit.coalesce", "FALSE", False),
    ("checkpoint.interval", "100", 100),
    ("checkpoint.interval", " 100 ", 100),
    ("state.format", "JSON", "json"),
    ("state.compaction.tombstoneThreshold", "0", 0.0),
    ("state.compaction.tombstoneThreshold", "2.5e-1", 0.25),
    ("logRetention.duration", "90000000", 90_000_000),
    ("logRetention.duration", "48h", 48 * HOUR),
    ("logRetention.duration", "7d", 7 * DAY),
    ("logRetention.duration", "2w", 14 * DAY),
    ("commit.dedupe.duration", "30m", HOUR // 2),
    ("commit.dedupe.duration", "90 s", 90_000),
    ("commit.dedupe.duration", "1500ms", 1500),
]


@pytest.mark.parametrize("name, text, value", READ)
def test_values(name: str, text: str, value: object) -> None:
    check_properties({name: text})
    assert setting({name: text}, name) == value


def test_the_alias_counts_in_hours() -> None:
    for key in ("purge.txLogRetentionHours", PREFIX + "purge.txLogRetentionHours"):
        check_properties({key: "48"})
        assert setting({key: "48"}, "logRetention.duration") == 48 * HOUR
    assert set(ALIASES) == {"purge.txLogRetentionHours"}


def test_superseded_and_free_names_are_accepted() -> None:
    assert set(SUPERSEDED) == {"checkpoint.retention", "transaction.useOptimized"}
    check_properties({"checkpoint.retention": "5", PREFIX + "transaction.useOptimized": "whatever"})
    check_properties({"owner": "", "täam": "x\ny", PREFIX + "mine": "1", "x" * 256: "y" * MAX_VALUE_BYTES})
    check_properties({"docMappingSchema.T1PNoYwrqgwDVLtf": "[" + " " * MAX_VALUE_BYTES + "]"})


REFUSED: list[tuple[dict[str, str], str, str]] = [
    ({"commit.coalesce": "yes"}, "commit.coalesce", "true or false, not 'yes'"),
    ({"commit.coalesce": "1"}, "commit.coalesce", "true or false"),
    ({PREFIX + "commit.coalesce": ""}, PREFIX + "commit.coalesce", "true or false"),
    ({"checkpoint.interval": "0"}, "checkpoint.interval", "from 1 to"),
    ({"checkpoint.interval": "-1"}, "checkpoint.interval", "from 1 to"),
    ({"checkpoint.interval": "1.5"}, "checkpoint.interval", "whole number"),
    ({"checkpoint.interval": "1_0"}, "checkpoint.interval", "whole number"),
    ({"checkpoint.interval": "٣"}, "checkpoint.interval", "whole number"),
    ({"checkpoint.interval": "9" * 5000}, "checkpoint.interval", "whole number"),
    ({"state.compressionLevel": "23"}, "state.compressionLevel", "from 1 to 22"),
    ({"state.compaction.tombstoneThreshold": "1.1"}, "state.compaction.tombstoneThreshold", "from 0.0 to 1.0"),
    ({"state.compaction.tombstoneThreshold": "nan"}, "state.compaction.tombstoneThreshold", "number"),
    ({"state.format": "orc"}, "state.format", "avro, json, parquet"),
    ({"cleanup.failurePolicy": "ignore"}, "cleanup.failurePolicy", "continue, fail"),
    ({"logRetention.duration": "-1"}, "logRetention.duration", "24h, 7d, 30m"),
    ({"logRetention.duration": "1.5h"}, "logRetention.duration", "24h, 7d, 30m"),
    ({"logRetention.duration": "1 year"}, "logRetention.duration", "24h, 7d, 30m"),
    ({"logRetention.duration": "9" * 19 + "w"}, "logRetention.duration", "a time from"),
    ({"purge.txLogRetentionHours": "2d"}, "purge.txLogRetentionHours", "whole number"),
    ({"commit.dedupe.duration": "31d"}, "commit.dedupe.duration", "at most logRetention.duration"),
    ({"logRetention.duration": "1h"}, "logRetention.duration", "commit.dedupe.duration (86400000 ms) must be at most"),
    ({"purge.txLogRetentionHours": "23"}, "purge.txLogRetentionHours", "at most logRetention.duration"),
    (
        {"transaction.retry.baseDelayMs": "6000"},
        "transaction.retry.baseDelayMs",
        "at most transaction.retry.maxDelayMs",
    ),
    ({"Commit.Coalesce": "true"}, "Commit.Coalesce", "write commit.coalesce"),
    (
        {"spark.indextables.STATE.format": "avro"},
        "spark.indextables.STATE.format",
        "write spark.indextables.state.format",
    ),
    (
        {"state.format": "avro", PREFIX + "state.format": "avro"},
        PREFIX + "state.format",
        "means the same as state.format",
    ),
    (
        {"logRetention.duration": "30d", "purge.txLogRetentionHours": "720"},
        "purge.txLogRetentionHours",
        "means the same",
    ),
    ({"": "x"}, "", "1 to 256"),
    ({"x" * 257: "x"}, "x" * 257, "1 to 256"),
    ({"a\nb": "x"}, "a\nb", "control characters"),
    ({"a\ud800": "x"}, "a\ud800", "surrogates"),
    ({"a": "\ud800"}, "a", "surrogate"),
    ({"a": "ü" * (MAX_VALUE_BYTES // 2 + 1)}, "a", "65538 bytes"),
    ({"a": 5}, "a", "must be text"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize("properties, name, message", REFUSED)
def test_refused_by_name(properties: dict[str, str], name: str, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check_properties(properties)
    assert caught.value.property_name == name
    assert message in caught.value.message
    assert len(str(caught.value)) < 500


def test_both_ends_of_a_pair_may_be_set_together() -> None:
    check_properties({"logRetention.duration": "1h", "commit.dedupe.duration": "1h"})
    check_properties({"transaction.retry.baseDelayMs": "6000", "transaction.retry.maxDelayMs": "6000"})


def test_the_table_wins_over_the_service_and_the_service_over_the_default() -> None:
    service = {"checkpoint.interval": "20"}
    assert setting({"checkpoint.interval": "30"}, "checkpoint.interval", service) == 30
    assert setting({PREFIX + "checkpoint.interval": "30"}, "checkpoint.interval", service) == 30
    assert setting({}, "checkpoint.interval", service) == 20
    assert setting({}, "checkpoint.interval", {}) == 10


def test_an_adopted_table_with_a_bad_value_still_opens() -> None:
    assert setting({"checkpoint.interval": "often"}, "checkpoint.interval") == 10
    assert setting({"checkpoint.interval": "often"}, "checkpoint.interval", {"checkpoint.interval": "20"}) == 20


def test_asking_for_a_name_that_is_no_setting_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        setting({}, "commit.coalesced")


@given(
    st.sampled_from(sorted(SETTINGS)), st.text(max_size=12) | st.from_regex(r"[0-9]{1,6}(ms|[smhdw])?", fullmatch=True)
)
def test_what_is_accepted_is_what_is_read(name: str, text: str) -> None:
    known = SETTINGS[name]
    try:
        check_properties({name: text})
    except PropertyError:
        return
    assert setting({name: text}, name) == known.values.parse(text)


def test_every_setting_is_asked_for_somewhere() -> None:
    source = Path(table_settings.__file__).resolve().parents[1]
    text = "\n".join(
        path.read_text() for path in source.rglob("*.py") if path != Path(table_settings.__file__).resolve()
    )
    assert [name for name in SETTINGS if f'"{name}"' not in text] == [], "a setting that nobody reads does nothing"


def test_own_value_is_what_the_properties_say_and_nothing_else() -> None:
    name = "checkpoint.parallelism"
    assert own_value({}, name) is None
    assert own_value({name: "7"}, name) == 7
    assert own_value({f"spark.indextables.{name}": "8"}, name) == 8
    assert own_value({name: "many", f"spark.indextables.{name}": "9"}, name) == 9
    assert own_value({name: "many"}, name) is None
    assert own_value({"purge.txLogRetentionHours": "2"}, "logRetention.duration") == 2 * 3_600_000


@pytest.mark.parametrize(
    "name, meant",
    [
        ("checkpoint.intervall", "checkpoint.interval"),
        ("checkpoint.intervals", "checkpoint.interval"),
        ("checkpont.interval", "checkpoint.interval"),
        ("state.formats", "state.format"),
        ("commit.coalescing", "commit.coalesce"),
        ("logRetention.durations", "logRetention.duration"),
        ("purge.txLogRetentionHour", "purge.txLogRetentionHours"),
        ("transaction.useOptimised", "transaction.useOptimized"),
        (PREFIX + "checkpoint.intervall", PREFIX + "checkpoint.interval"),
    ],
)
def test_a_name_close_to_a_known_one_is_refused_with_the_suggestion(name: str, meant: str) -> None:
    with pytest.raises(PropertyError, match=f"did you mean {meant}\\?"):
        check_properties({name: "5"})
    check_properties({name: "5"}, before={name: "4"})


@pytest.mark.parametrize(
    "name",
    [
        *("delta.checkpoint.interval", "delta.logRetentionDuration", "spark.sql.sources.schema", "write.format"),
        *("owner", "team", "retention", "checkpoint", "cleanup", "state", "created.by", "interval", "my.format"),
        *("spark.checkpoint.interval", "docMappingSchema.interval"),
    ],
)
def test_names_of_others_are_theirs(name: str) -> None:
    check_properties({name: "x"})


def test_known_names_are_not_close_to_each_other_in_error() -> None:
    for name in (*SETTINGS, *ALIASES, *SUPERSEDED):
        table_settings._check_name(name)


def test_what_is_superseded_is_explained() -> None:
    notes = notes_on({"checkpoint.retention": "5", PREFIX + "transaction.useOptimized": "x", "owner": "me"})
    assert list(notes) == ["checkpoint.retention", PREFIX + "transaction.useOptimized"]
    assert "state.retention.versions" in notes["checkpoint.retention"]


def test_a_property_is_judged_with_what_the_service_set() -> None:
    service = {"commit.dedupe.duration": "20d"}
    with pytest.raises(PropertyError, match="must be at most"):
        check_properties({"logRetention.duration": "10d"}, None, service)
    check_properties({"logRetention.duration": "10d"})
    check_properties({"owner": "me"}, None, {"commit.dedupe.duration": "40d"})


@pytest.mark.parametrize(
    "defaults", [{"owner": "me"}, {"checkpoint.retention": "1"}, {"state.formats": "json"}, {"commit.coalesce": "no"}]
)
def test_the_service_sets_known_properties_alone(defaults: dict[str, str]) -> None:
    with pytest.raises(PropertyError):
        check_defaults(defaults)
    check_defaults({"checkpoint.interval": "5", PREFIX + "state.format": "json", "purge.txLogRetentionHours": "99"})


ONLY_THE_TABLES = {"core/replay.py", "usecases/state_snapshot.py"}
"""Where only the table's own property counts: to which length bounds were cut is read from its log."""


def test_the_services_settings_are_asked_for_wherever_a_property_is() -> None:
    source = Path(table_settings.__file__).resolve().parents[1]
    found = set()
    for path in source.rglob("*.py"):
        if path.name == "table_settings.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                wanted = {"setting": 3, "own_value": 3, "state_settings": 2, "retention_settings": 2}.get(node.func.id)
                if wanted is not None and len(node.args) < wanted:
                    found.add(path.relative_to(source).as_posix())
    assert found <= ONLY_THE_TABLES | {"core/new_files.py"}, "pass the service's settings too"
