"""What is known of a log before anything of it is deleted. Ages are by storage time, all against one clock reading."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS
from tarnlog_server.core.setting_values import DAY, HOUR
from tarnlog_server.core.table_settings import setting

FLOOR_RIPE_MS = DAY
"""How long a floor must have stood before anybody relies on everyone having seen it."""


class VersionFact(msgspec.Struct, frozen=True):
    """A version file."""

    version: int
    age_ms: int


class StateFact(msgspec.Struct, frozen=True):
    """A state directory. `valid` is None until somebody looked; `manifests` is None when its list cannot be read.

    Manifests are named from the log's root: `manifests/...`, or `state-v.../...` for those inside a state directory.
    `directory` is the state's own name there, so that it can be seen who uses a manifest that lies in it.
    """

    version: int
    age_ms: int
    ours: bool
    valid: bool | None
    manifests: frozenset[str] | None
    directory: str = ""


class CheckpointFact(msgspec.Struct, frozen=True):
    """A JSON or Parquet checkpoint with all its parts; `name` tells two of one version apart."""

    version: int
    age_ms: int
    valid: bool | None
    name: str = ""


class FloorFact(msgspec.Struct, frozen=True):
    """A published floor."""

    version: int
    age_ms: int


class ManifestFact(msgspec.Struct, frozen=True):
    """A manifest in the shared folder, named from the log's root."""

    name: str
    age_ms: int


class LogFacts(msgspec.Struct, frozen=True, dict=True):
    """A log as listed. `adopted_from` is the last version of other software; `pointed` is what the hint names.

    What follows from the listing is computed once: a log may have a million versions.
    """

    versions: tuple[VersionFact, ...]
    states: tuple[StateFact, ...] = ()
    checkpoints: tuple[CheckpointFact, ...] = ()
    floors: tuple[FloorFact, ...] = ()
    adopted_from: int | None = None
    pointed: int | None = None

    @cached_property
    def head(self) -> int:
        """The newest version; -1 without any."""
        return max((one.version for one in self.versions), default=-1)

    @cached_property
    def floor(self) -> FloorFact | None:
        """The floor in force: the highest."""
        return max(self.floors, key=lambda one: one.version, default=None)

    @cached_property
    def pinned(self) -> frozenset[int]:
        """Floors whose state, manifests and version file must stay: the highest, and those it replaced too lately."""
        ripe = max((one.version for one in self.floors if one.age_ms >= FLOOR_RIPE_MS), default=-1)
        return frozenset(one.version for one in self.floors if one.version >= ripe)

    @cached_property
    def unbroken_from(self) -> int:
        """The lowest version from which every version file up to the head is there."""
        listed = {one.version for one in self.versions}
        first = self.head
        while first - 1 in listed:
            first -= 1
        return first

    @cached_property
    def gap(self) -> int | None:
        """A missing version file at or above the floor, or above what was adopted; None when the log is whole."""
        adopted = 0 if self.adopted_from is None else self.adopted_from + 1
        required = max(adopted, 0 if self.floor is None else self.floor.version)
        if self.head < required:
            return required
        return self.unbroken_from - 1 if self.unbroken_from > required else None

    @cached_property
    def begins_with(self) -> int | None:
        """The first own state of a log that neither goes back to 0 nor has a floor; None where it does not matter.

        Such a log was adopted. What lies before that state may be the only record of its version.
        """
        start = self.unbroken_from
        if start <= 0 or (self.floor is not None and self.floor.version >= start):
            return None
        own = [one.version for one in self.states if one.ours and one.valid is not False and one.version >= start - 1]
        return min(own, default=self.head)

    def state_at(self, version: int) -> StateFact | None:
        """Our state of a version, or else anybody's."""
        found = [one for one in self.states if one.version == version]
        return max(found, key=lambda one: one.ours, default=None)


class RetentionSettings(msgspec.Struct, frozen=True):
    """The properties of a table that decide here; times in milliseconds."""

    enabled: bool = True
    log_ms: int = 30 * DAY
    dedupe_ms: int = DAY
    checkpoint_ms: int = 2 * HOUR
    state_versions: int = 2
    state_ms: int = 168 * HOUR
    manifest_ms: int = HOUR

    @property
    def keep_versions_ms(self) -> int:
        """How long a version must stay readable: for time travel, and for resends whose ids are looked for in it."""
        return max(self.log_ms, self.dedupe_ms + CLOCK_TOLERANCE_MS)


def retention_settings(configuration: Mapping[str, str], service: Mapping[str, str] | None = None) -> RetentionSettings:
    """What is in force for a table."""

    def value(name: str) -> Any:
        return setting(configuration, name, service)

    return RetentionSettings(
        enabled=value("cleanup.enabled"),
        log_ms=value("logRetention.duration"),
        dedupe_ms=value("commit.dedupe.duration"),
        checkpoint_ms=value("checkpointRetention.duration"),
        state_versions=value("state.retention.versions"),
        state_ms=value("state.retention.hours") * HOUR,
        manifest_ms=value("state.gc.minManifestAgeHours") * HOUR,
    )
