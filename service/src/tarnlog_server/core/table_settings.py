"""Table properties: which names mean something, what their values may be, and what holds when they are not set.

Properties are strings in `metaData.configuration`. A known name is checked when it is set; every other name belongs to
the user. Names are accepted with the prefix `spark.indextables.` too; setting a name in both spellings is refused, so
that no reader depends on which one wins.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tarnlog_server.core.setting_values import DAY, HOUR, Choice, Duration, Flag, Hours, Number, Values, Whole

PREFIX = "spark.indextables."
MAX_NAME_LENGTH = 256
MAX_VALUE_BYTES = 64 * 1024
# Written by the committer, which has its own limit for them.
_REGISTRY_PREFIX = "docMappingSchema."
# How alike two names are (difflib's ratio) from which on one is taken for the other, mistyped.
_ALIKE = 0.85
_FOREIGN = ("delta.", "spark.", "iceberg.", "hudi.", "hive.", "parquet.", "write.", "read.", "option.", "hoodie.")
_MAX_COMPARED = 200
"""Unknown names of one request that are compared with known ones, each for about a millisecond."""


class PropertyError(ValueError):
    """A property cannot be set; `property_name` names it as it was given, the message says what it may be."""

    def __init__(self, property_name: str, message: str) -> None:
        shown = property_name if len(property_name) <= 80 else property_name[:77] + "..."
        super().__init__(f"{shown!r}: {message}")
        self.property_name = property_name
        self.message = message


class Setting(msgspec.Struct, frozen=True):
    """A known property. `default` is the value itself: durations are milliseconds."""

    name: str
    values: Values
    default: bool | int | float | str
    meaning: str


_ALL = (
    Setting("checkpoint.enabled", Flag(), True, "write a state or checkpoint after some commits"),
    Setting("checkpoint.interval", Whole(1, 1_000_000), 10, "versions between two states"),
    Setting(
        "checkpoint.parallelism",
        Whole(1, 256),
        4,
        "parts of a state read or written, and versions read, at the same time",
    ),
    Setting("checkpoint.read.timeoutSeconds", Whole(1, 3600), 30, "how long reading one object of a state may take"),
    Setting(
        "checkpoint.compression", Choice("snappy", "zstd", "gzip", "none"), "snappy", "codec of Parquet checkpoints"
    ),
    Setting(
        "checkpoint.maxFileSize",
        Whole(64 * 1024, 2**40),
        128 * 2**20,
        "bytes above which a JSON or Parquet checkpoint is split",
    ),
    Setting(
        "checkpoint.actionsPerPart", Whole(1, 10_000_000), 100_000, "actions above which a JSON checkpoint is split"
    ),
    Setting("checkpointRetention.duration", Duration(0), 2 * HOUR, "age at which a superseded checkpoint may go"),
    Setting("logRetention.duration", Duration(0), 30 * DAY, "age at which a version file may go"),
    Setting("deletedFileRetention.duration", Duration(0), 7 * DAY, "age at which a removed data file may go"),
    Setting("cleanup.enabled", Flag(), True, "delete old versions and states in the background"),
    Setting(
        "cleanup.failurePolicy", Choice("continue", "fail"), "continue", "what one failed deletion does to the rest"
    ),
    Setting("transaction.compression.enabled", Flag(), True, "compress version files above 4 KiB"),
    Setting(
        "transaction.retry.maxAttempts", Whole(1, 1000), 10, "slots a commit may lose before it is told to come back"
    ),
    Setting("transaction.retry.baseDelayMs", Whole(1, 60_000), 100, "first pause between two attempts"),
    Setting("transaction.retry.maxDelayMs", Whole(1, 600_000), 5000, "longest pause between two attempts"),
    Setting("state.format", Choice("avro", "json", "parquet"), "avro", "how states are written"),
    Setting("state.compression", Choice("zstd", "snappy", "none"), "zstd", "codec of Avro manifests"),
    Setting("state.compressionLevel", Whole(1, 22), 3, "zstd's level"),
    Setting("state.entriesPerManifest", Whole(1, 10_000_000), 50_000, "file entries in one manifest"),
    Setting("state.read.parallelism", Whole(1, 256), 8, "manifests read at the same time"),
    Setting(
        "state.schema.renormalizeThreshold", Whole(1, 1_000_000), 5, "distinct mappings above which refs are rewritten"
    ),
    Setting(
        "state.compaction.tombstoneThreshold", Number(0.0, 1.0), 0.10, "tombstones per file above which to compact"
    ),
    Setting("state.compaction.maxManifests", Whole(1, 1_000_000), 20, "manifests above which to compact"),
    Setting("state.compaction.largeRemoveThreshold", Whole(1, 2**63 - 1), 2**31 - 1, "removes above which to compact"),
    Setting("state.compaction.afterMerge", Flag(), True, "compact after OPTIMIZE and MERGE"),
    Setting("state.retention.versions", Whole(1, 1_000_000), 2, "newest states that are always kept"),
    Setting("state.retention.hours", Whole(0, 876_000), 168, "age in hours below which a state is kept"),
    Setting("state.gc.minManifestAgeHours", Whole(1, 876_000), 1, "age in hours at which an unused manifest may go"),
    Setting("stats.truncation.maxLength", Whole(1, 65_536), 32, "characters kept of a text bound"),
    Setting(
        "cache.expirationSeconds", Whole(0, 604_800), 300, "how long the caches of reads keep what is of this table"
    ),
    Setting("cache.maxVersions", Whole(0, 10_000_000), 1000, "how many versions of this table are cached"),
    Setting("commit.coalesce", Flag(), True, "let several commits share a version"),
    Setting("commit.dedupe.duration", Duration(1000), DAY, "how long a commit id is remembered"),
    Setting("commit.maxBytes", Whole(1024, 512 * 2**20), 64 * 2**20, "largest commit that is accepted"),
    Setting("skip.cooldownHours", Whole(0, 876_000), 24, "hours for which a skipped file is left alone"),
)
SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _ALL}

ALIASES: Mapping[str, tuple[str, Values]] = {
    "purge.txLogRetentionHours": ("logRetention.duration", Hours(0, 876_000)),
}
"""Other names of a setting, with what their values may be."""

SUPERSEDED: Mapping[str, str] = {
    "checkpoint.retention": "states are kept by state.retention.versions and state.retention.hours, "
    "checkpoints by checkpointRetention.duration",
    "transaction.useOptimized": "there is one implementation, and it is the fast one",
}
"""Names that are accepted and do nothing, with what took their place."""


def _sources(name: str) -> tuple[tuple[str, Values], ...]:
    """Every key under which a setting may stand, the strongest first."""
    other = [(alias, values) for alias, (target, values) in ALIASES.items() if target == name]
    return tuple(
        (prefix + key, values) for key, values in [(name, SETTINGS[name].values), *other] for prefix in ("", PREFIX)
    )


_SOURCES = {name: _sources(name) for name in SETTINGS}
_BY_KEY = {key: (name, values) for name, sources in _SOURCES.items() for key, values in sources}
_SPELLING = {key.lower(): key for key in (*_BY_KEY, *SUPERSEDED, *(PREFIX + name for name in SUPERSEDED))}


_NAMES = (*SETTINGS, *ALIASES, *SUPERSEDED)
_LONGEST_NAME = max(map(len, _NAMES)) + 8
_ORDERED = (
    ("commit.dedupe.duration", "logRetention.duration", "ids are found in the log"),
    ("transaction.retry.baseDelayMs", "transaction.retry.maxDelayMs", "pauses only grow"),
)


def setting(configuration: Mapping[str, str], name: str, service: Mapping[str, str] | None = None) -> Any:
    """The value in force: the table's property, else the service's setting, else the default.

    A value that cannot be read is passed over: it was never accepted here, so it came with a log that was adopted.
    KeyError for a name that is no setting.
    """
    known = SETTINGS[name]
    found = own_value(configuration, name, service)
    return known.default if found is None else found


def own_value(properties: Mapping[str, str], name: str, service: Mapping[str, str] | None = None) -> Any | None:
    """What a table's properties, or else the service's settings, say of a setting; None where only a default is left.

    A value that cannot be read says nothing.
    """
    found = _said(properties, name)
    return _said(service, name) if found is None and service else found


def _said(properties: Mapping[str, str], name: str) -> Any | None:
    for key, values in _SOURCES[name]:
        text = properties.get(key)
        if text is not None:
            try:
                return values.parse(text)
            except ValueError:
                continue
    return None


def check_properties(
    properties: Mapping[str, str], before: Mapping[str, str] | None = None, service: Mapping[str, str] | None = None
) -> None:
    """PropertyError unless all of a table's properties, taken together, may be set.

    Names that the table has already (`before`) are not taken for mistyped ones: a log that was taken over may have any.
    """
    given: dict[str, str] = {}
    compared = 0
    for key, value in properties.items():
        _check_text(key, value)
        right = _SPELLING.get(key.lower(), key)
        if right != key:
            raise PropertyError(key, f"case counts in names: write {right}")
        if key not in _BY_KEY:
            if not (before and key in before) and compared < _MAX_COMPARED:
                compared += 1
                _check_name(key)
            continue
        name, values = _BY_KEY[key]
        if name in given:
            raise PropertyError(key, f"it means the same as {given[name]}, which is set too: keep one of them")
        given[name] = key
        try:
            values.parse(value)
        except ValueError as error:
            raise PropertyError(key, f"{error}, not {value[:80]!r}") from None
    for small, large, why in _ORDERED:
        # What the service set is the operator's: only a property that was given is at fault.
        if small in given or large in given:
            _check_order(properties, service, given, small, large, why)


def check_defaults(defaults: Mapping[str, str]) -> None:
    """PropertyError unless these may be the service's settings for all tables: known names alone, with valid values."""
    for key in defaults:
        if key not in _BY_KEY and key not in _SPELLING.values():
            _check_name(key)
            if _SPELLING.get(key.lower()) is None:
                raise PropertyError(key, "no table property has this name")
        if key in SUPERSEDED:
            raise PropertyError(key, f"it does nothing: {SUPERSEDED[key]}")
    check_properties(defaults)


def notes_on(properties: Mapping[str, str]) -> dict[str, str]:
    """What to know of properties that are accepted and do nothing, by name."""
    return {
        key: f"accepted, and does nothing: {SUPERSEDED[name]}"
        for key in properties
        if (name := key.removeprefix(PREFIX)) in SUPERSEDED
    }


def in_force(configuration: Mapping[str, str], service: Mapping[str, str]) -> dict[str, str]:
    """The service's settings that hold for a table, because its own properties do not set them."""
    return {key: value for key, value in service.items() if _said(configuration, _BY_KEY[key][0]) is None}


def closest_name(name: str, known: Iterable[str], *, alike: float = _ALIKE) -> str | None:
    """The known name that a mistyped one probably means."""
    found = difflib.get_close_matches(name, known, n=1, cutoff=alike)
    return found[0] if found else None


def _check_name(key: str) -> None:
    """PropertyError for a name that is nearly a known one. Other software's names and the user's own are theirs."""
    name = key.removeprefix(PREFIX)
    if key in _SPELLING.values() or len(name) > _LONGEST_NAME or key.startswith(_REGISTRY_PREFIX):
        return
    if name == key and key.lower().startswith(_FOREIGN):
        return
    meant = closest_name(name, _NAMES)
    if meant is not None:
        raise PropertyError(key, f"did you mean {key[: len(key) - len(name)]}{meant}? There is no property {name[:80]}")


def _check_order(
    properties: Mapping[str, str],
    service: Mapping[str, str] | None,
    given: Mapping[str, str],
    small: str,
    large: str,
    why: str,
) -> None:
    least, most = setting(properties, small, service), setting(properties, large, service)
    if least > most:
        named = given.get(small) or given.get(large) or small
        message = f"{small} ({least} ms) must be at most {large} ({most} ms), because {why}: change one of them"
        raise PropertyError(named, message)


def _check_text(key: str, value: object) -> None:
    if not 0 < len(key) <= MAX_NAME_LENGTH:
        raise PropertyError(key, f"a property's name must have 1 to {MAX_NAME_LENGTH} characters")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in key):
        raise PropertyError(key, "a property's name must not contain control characters or lone surrogates")
    if not isinstance(value, str):
        raise PropertyError(key, "a property's value must be text: put it in quotes")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise PropertyError(key, "the value contains a lone surrogate: send valid Unicode") from None
    if size > MAX_VALUE_BYTES and not key.startswith(_REGISTRY_PREFIX):
        raise PropertyError(key, f"the value has {size} bytes: use at most {MAX_VALUE_BYTES}")
