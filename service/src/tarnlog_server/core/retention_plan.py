"""What of a log may be deleted now, and where its floor may move: decided from facts alone, in steps that may stop.

Order of a run, each step from facts listed afresh or from this plan: re-validate what the plan asks for and plan again;
delete versions, ascending; delete checkpoints and states; list manifests, then states, and delete unused manifests;
publish the next floor last. A run that stops anywhere has deleted a part of what was allowed, and the next one goes on.

A version below the floor does not exist for any reader, so the floor is what ends time travel: it moves only over
versions that retention no longer promises, onto a state of ours that was validated just now. Files go a day later,
when nobody can still believe in the old floor. Since only the highest floor counts, the next one is not published
before that day is over: a floor that moved every hour would never be ripe.

States are gone long before the log's retention is over, so usually none is left where the floor may go. Then the plan
names the version at which one should be built.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import msgspec

from tarnlog_server.core.retention_facts import (
    FLOOR_RIPE_MS,
    CheckpointFact,
    FloorFact,
    LogFacts,
    ManifestFact,
    RetentionSettings,
    StateFact,
)


class Kept(msgspec.Struct, frozen=True):
    """Neighbours that stay for one reason. Manifests have no versions; theirs are -1."""

    kind: str
    first: int
    last: int
    count: int
    reason: str


class FloorMove(msgspec.Struct, frozen=True):
    """At most one of three is set: the floor to publish, a state to validate first, a state to build first."""

    publish: int | None = None
    validate: int | None = None
    build: int | None = None
    reason: str = ""


class CleanupPlan(msgspec.Struct, frozen=True):
    """What may go, in the order of deletion, and what stays and why."""

    versions: tuple[int, ...]
    checkpoints: tuple[CheckpointFact, ...]
    states: tuple[StateFact, ...]
    floor: FloorMove
    kept: tuple[Kept, ...]


class ManifestPlan(msgspec.Struct, frozen=True):
    """Manifests that may go, and why the others stay."""

    delete: tuple[str, ...]
    kept: tuple[Kept, ...]


def plan(facts: LogFacts, settings: RetentionSettings) -> CleanupPlan:
    """Everything but manifests. `cleanup.enabled=false` keeps all of it, and the floor where it is."""
    move = move_floor(facts, settings)
    stays = version_gates(facts, settings)
    versions = {one.version: stays(one.version, one.age_ms) for one in facts.versions}
    states = why_states_stay(facts, settings, {move.publish, move.validate})
    checkpoints = why_checkpoints_stay(facts, settings)
    return CleanupPlan(
        versions=tuple(sorted(version for version, reason in versions.items() if reason is None)),
        checkpoints=tuple(one for one, reason in checkpoints if reason is None),
        states=tuple(one for one, reason in states if reason is None),
        floor=move,
        kept=(
            *_runs("version", sorted(versions.items())),
            *_runs("checkpoint", [(one.version, reason) for one, reason in checkpoints]),
            *_runs("state", [(one.version, reason) for one, reason in states]),
        ),
    )


def version_gates(facts: LogFacts, settings: RetentionSettings) -> Callable[[int, int], str | None]:
    """For a (version, age): the first gate that the version file does not pass; None when it may go.

    What does not depend on the version is decided once, not a million times.
    """
    floor, head, keep_ms = facts.floor, facts.head, settings.keep_versions_ms
    if not settings.enabled:
        return lambda version, age_ms: "cleanup.enabled is false"
    if floor is None:
        return lambda version, age_ms: "it is the newest version" if version >= head else "the log has no floor yet"
    above = f"it is not below the floor {floor.version}"
    closed = _why_floor_forbids(facts, floor)
    lowest, pinned = floor.version, facts.pinned

    def stays(version: int, age_ms: int) -> str | None:
        if version >= head:
            return "it is the newest version"
        if version >= lowest:
            return above
        if age_ms <= keep_ms:
            return "it is younger than the log's retention"
        if closed is not None:
            return closed
        return "it belongs to a floor that was replaced lately" if version in pinned else None

    return stays


def _why_floor_forbids(facts: LogFacts, floor: FloorFact) -> str | None:
    """Why nothing at all may go on the word of this floor."""
    if floor.age_ms < FLOOR_RIPE_MS:
        return f"the floor {floor.version} is younger than 24 hours"
    if not _is_anchor(facts.state_at(floor.version)):
        return f"the state of the floor {floor.version} was not found valid just now"
    if facts.gap is not None:
        return f"version {facts.gap} is missing from the log: nothing is deleted before that is repaired"
    return None


def move_floor(facts: LogFacts, settings: RetentionSettings) -> FloorMove:
    """Where the floor may go next, and what is needed for that."""
    floor = facts.floor
    low = -1 if floor is None else floor.version
    if not settings.enabled:
        return FloorMove(reason="cleanup.enabled is false")
    if facts.gap is not None:
        return FloorMove(reason=f"version {facts.gap} is missing from the log")
    if floor is not None:
        anchor = facts.state_at(low)
        if anchor is None or not anchor.ours or anchor.valid is False:
            return FloorMove(build=low, reason=f"the state of the floor {low} is missing or damaged")
        if floor.age_ms < FLOOR_RIPE_MS:
            return FloorMove(reason=f"the floor {low} is younger than 24 hours")
    horizon = _horizon(facts, settings, low)
    lowest = max(low, 0, -1 if facts.adopted_from is None else facts.adopted_from)
    if horizon <= lowest:
        return FloorMove(reason="no version is older than the log's retention")
    usable = [one for one in facts.states if one.ours and one.valid is not False and lowest < one.version <= horizon]
    best = max(usable, key=lambda one: one.version, default=None)
    if best is None:
        return FloorMove(build=horizon, reason=f"no state of ours is left up to version {horizon}")
    if not _is_anchor(best):
        return FloorMove(validate=best.version, reason="a floor needs a state that was just validated")
    return FloorMove(publish=best.version)


def why_states_stay(
    facts: LogFacts, settings: RetentionSettings, wanted: Iterable[int | None] = ()
) -> list[tuple[StateFact, str | None]]:
    """Each state, ascending, with the reason why it stays; None when it may go. `wanted` are the next floor's."""
    states = sorted(facts.states, key=lambda one: one.version)
    sound = sorted({one.version for one in states if one.valid is not False and one.version <= facts.head})
    newest = frozenset(sound[-settings.state_versions :])
    needed = frozenset(wanted)
    reasons: list[tuple[StateFact, str | None]] = []
    for one in states:
        reason = _why_log_needs(facts, one.version)
        if not settings.enabled:
            reason = "cleanup.enabled is false"
        elif one.version in facts.pinned:
            reason = "a floor stands on it"
        elif one.version in needed:
            reason = "the next floor will stand on it"
        elif one.version in newest:
            reason = f"it is one of the newest {settings.state_versions}"
        elif one.age_ms <= settings.state_ms:
            reason = "it is younger than state.retention.hours"
        reasons.append((one, reason))
    return _with_used_directories(reasons)


def why_checkpoints_stay(facts: LogFacts, settings: RetentionSettings) -> list[tuple[CheckpointFact, str | None]]:
    """Each checkpoint, ascending, with the reason why it stays; None when it may go. A newer valid state counts too."""
    facts_of_both: tuple[StateFact | CheckpointFact, ...] = (*facts.states, *facts.checkpoints)
    newest_valid = max((one.version for one in facts_of_both if one.valid and one.version <= facts.head), default=-1)
    reasons: list[tuple[CheckpointFact, str | None]] = []
    for one in sorted(facts.checkpoints, key=lambda each: (each.version, each.name)):
        reason = _why_log_needs(facts, one.version)
        if not settings.enabled:
            reason = "cleanup.enabled is false"
        elif one.age_ms <= settings.checkpoint_ms:
            reason = "it is younger than checkpointRetention.duration"
        elif newest_valid <= one.version:
            reason = "no newer state or checkpoint was found valid"
        reasons.append((one, reason))
    return reasons


def plan_manifests(
    manifests: Iterable[ManifestFact], states: Iterable[StateFact], settings: RetentionSettings
) -> ManifestPlan:
    """Shared manifests that no state uses. Manifests are listed BEFORE states: what was written since is not judged.

    Every state that still exists counts, also one that was to be deleted and was not.
    """
    states = tuple(states)
    used: set[str] = set().union(*(one.manifests or () for one in states))
    unreadable = min((one.version for one in states if one.manifests is None), default=None)
    delete: list[str] = []
    reasons: list[tuple[int, str | None]] = []
    for one in sorted(manifests, key=lambda each: each.name):
        reason: str | None = None
        if not settings.enabled:
            reason = "cleanup.enabled is false"
        elif one.name in used:
            reason = "a state uses it"
        elif one.age_ms <= settings.manifest_ms:
            reason = "it is younger than state.gc.minManifestAgeHours"
        elif unreadable is not None:
            reason = f"the state of version {unreadable} cannot be read, and may use it"
        else:
            delete.append(one.name)
        reasons.append((-1, reason))
    return ManifestPlan(tuple(delete), _runs("manifest", sorted(reasons, key=lambda pair: pair[1] or "")))


def _is_anchor(state: StateFact | None) -> bool:
    return state is not None and state.ours and state.valid is True and state.manifests is not None


def _horizon(facts: LogFacts, settings: RetentionSettings, low: int) -> int:
    """The highest version that a floor may have: everything below it is older than what must stay readable.

    States of versions without a file count with their own age: in some tables they are the only record.
    """
    listed = {one.version for one in facts.versions}
    ages = [(one.version, one.age_ms) for one in facts.versions]
    ages += [(one.version, one.age_ms) for one in facts.states if one.version not in listed]
    young = [version for version, age in ages if version >= low and age <= settings.keep_versions_ms]
    return min([*young, facts.head])


def _why_log_needs(facts: LogFacts, version: int) -> str | None:
    """Why the log cannot be read as it stands without this state or checkpoint, whatever its age."""
    if version > facts.head:
        return "it is newer than the log: another writer may be at work"
    if facts.pointed == version:
        return "_last_checkpoint names it"
    if facts.gap is not None:
        return f"version {facts.gap} is missing from the log"
    begins = facts.begins_with
    return "the log begins with it" if begins is not None and version <= begins else None


def _with_used_directories(reasons: list[tuple[StateFact, str | None]]) -> list[tuple[StateFact, str | None]]:
    """Older software kept manifests inside state directories: one that a state which stays uses must stay as well."""
    stays = [one for one, reason in reasons if reason is not None]
    unreadable = any(one.manifests is None for one in stays)
    used: set[str] = set()
    while stays:
        names = set().union(*(one.manifests or () for one in stays))
        found = {name.split("/", 1)[0] for name in names if not name.startswith("manifests/")} - used
        used |= found
        stays = [one for one, _ in reasons if one.directory in found]
    after = []
    for one, reason in reasons:
        if reason is None and one.directory in used:
            reason = "a state that stays uses manifests in its directory"
        elif reason is None and unreadable and not one.ours:
            reason = "a state that stays cannot be read, and may use manifests in its directory"
        after.append((one, reason))
    return after


def _runs(kind: str, reasons: Iterable[tuple[int, str | None]]) -> tuple[Kept, ...]:
    runs = []
    for reason, group in itertools.groupby(reasons, key=lambda pair: pair[1]):
        if reason is not None:
            found = [version for version, _ in group]
            runs.append(Kept(kind, found[0], found[-1], len(found), reason))
    return tuple(runs)
