"""Which data files of a table may go: those that no retained version names, no session covers, and that are old.

Everything doubtful is kept. An object is compared with the log by its name as stored and by that name decoded, because
some writers store names that others would encode. A file that the log names by an absolute address is recognised by its
last component alone, because one place has many addresses. Folders and files that start with `_` or `.` are not data.

A file that is written and committed while vacuum runs is young, and that protects it. A writer that commits files older
than the retention needs a session; sessions must be read before the references, so that one that ends by committing is
seen in either.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from tarnlog.protocol.paths import path_key
from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS
from tarnlog_server.core.setting_values import HOUR

MIN_RETENTION_MS = 24 * HOUR


class DataObject(msgspec.Struct, frozen=True):
    """An object in the table's folder; `path` is its name below that folder, exactly as stored."""

    path: str
    size: int
    modified_ms: int


class Session(msgspec.Struct, frozen=True):
    """A writer that is still at work below a prefix; the empty prefix is the whole table."""

    prefix: str
    expires_at_ms: int


class Removed(msgspec.Struct, frozen=True):
    """A removed file. Without a time it counts as removed long ago, as it does in replay."""

    path: str
    deletion_timestamp: int | None = None


class Why(enum.Enum):
    """Why an object stays."""

    NOT_DATA = "not-data"
    REFERENCED = "referenced"
    YOUNG = "young"
    SESSION = "session"


class Orphans(msgspec.Struct, frozen=True):
    """The objects of one page that may go, and how many stay for which reason."""

    objects: tuple[DataObject, ...]
    kept: dict[Why, int]


class RetentionTooShort(ValueError):
    """A retention below the minimum, asked for without the right to do so."""


def retention(configured_ms: int, requested_ms: int | None = None, *, override: bool = False) -> int:
    """The retention to use: what was asked for, else the table's; never below 24 hours without an admin's override.

    The table's own setting is raised to the minimum in silence: it was accepted when it was set, and is a wish here.
    """
    wanted = configured_ms if requested_ms is None else requested_ms
    if wanted < 0:
        raise RetentionTooShort("retention cannot be negative: give a number of hours from 0 up")
    if override or wanted >= MIN_RETENTION_MS:
        return wanted
    if requested_ms is None:
        return MIN_RETENTION_MS
    raise RetentionTooShort(
        f"{requested_ms} ms is less than {MIN_RETENTION_MS} ms: writers and readers may still use files that young. "
        "Ask for at least 24 hours, or let an admin override the minimum"
    )


def referenced(
    live_at_floor: Iterable[str], added_since: Iterable[str], removed: Iterable[Removed], expired_before_ms: int
) -> set[str]:
    """Keys of every file that a version from the floor on may need.

    Files live at the floor, files that any later version added (also those it removed again), and files whose removal
    is not older than `expired_before_ms` (now less the retention).
    """
    keys = {path_key(path) for path in live_at_floor}
    keys.update(path_key(path) for path in added_since)
    keys.update(
        path_key(one.path)
        for one in removed
        if one.deletion_timestamp is not None and one.deletion_timestamp > expired_before_ms
    )
    return keys


class VacuumPlan:
    """Judges pages of a listing one by one, against one set of references: memory is bounded by that set."""

    def __init__(
        self, references: Collection[str], sessions: Iterable[Session], *, now_ms: int, retention_ms: int
    ) -> None:
        self._references = references
        self._elsewhere = {_file_name(key) for key in references if key.startswith("/") or ":/" in key}
        self._old_before = now_ms - retention_ms
        # A session's clock may be behind ours.
        active = [one.prefix for one in sessions if one.expires_at_ms + CLOCK_TOLERANCE_MS > now_ms]
        self._covered = tuple({spelling for prefix in active for spelling in (prefix, path_key(prefix))})

    def orphans(self, page: Iterable[DataObject]) -> Orphans:
        """The objects of a page that may be deleted now."""
        found: list[DataObject] = []
        kept: Counter[Why] = Counter()
        for one in page:
            why = self.why_kept(one)
            if why is None:
                found.append(one)
            else:
                kept[why] += 1
        return Orphans(tuple(found), dict(kept))

    def why_kept(self, one: DataObject) -> Why | None:
        """Why an object stays; None when it may go."""
        key = path_key(one.path)
        if not is_data(one.path) or not is_data(key):
            return Why.NOT_DATA
        if one.path in self._references or key in self._references or self._is_elsewhere(one.path, key):
            return Why.REFERENCED
        if one.modified_ms >= self._old_before:
            return Why.YOUNG
        if self._covered and (one.path.startswith(self._covered) or key.startswith(self._covered)):
            return Why.SESSION
        return None

    def _is_elsewhere(self, *names: str) -> bool:
        return bool(self._elsewhere) and any(_file_name(name) in self._elsewhere for name in names)


def _file_name(key: str) -> str:
    """The last part that names anything: an absolute key is decoded but not normalised, so it may end in '/' or '.'."""
    return next((part for part in reversed(key.split("/")) if part not in ("", ".")), "")


def is_data(path: str) -> bool:
    """Whether a name can be a data file's: no part of it starts with `_` or `.`, and it does not end as a folder."""
    parts = path.split("/")
    return parts[-1] != "" and not any(part.startswith(("_", ".")) for part in parts)
