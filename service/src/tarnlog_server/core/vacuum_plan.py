"""Which data files of a table may go: those that no retained version names, no session covers, and that are old.

Everything doubtful is kept. An object is compared with the log by its name as stored and by that name decoded, because
some writers store names that others would encode. A file that the log names by an absolute address is recognised by its
last component alone, because one place has many addresses. Folders and files that start with `_` or `.` are not data,
but for what a Spark job that died left in the temporary folder of its own `write-<uuid>`. What is older than the table
or belongs to another one is kept by the rules of `core.protected_files`.

A file that is written and committed while vacuum runs is young, and that protects it. A writer that commits files older
than the retention needs a session; sessions must be read before the references, so that one that ends by committing is
seen in either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from tarnlog.protocol.paths import path_key
from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS
from tarnlog_server.core.protected_files import DataObject, Why, why_protected
from tarnlog_server.core.setting_values import HOUR
from tarnlog_server.core.vacuum_references import References

MIN_RETENTION_MS = 24 * HOUR
NOTHING_ERASED: Mapping[str, int] = MappingProxyType({})


class Session(msgspec.Struct, frozen=True):
    """A writer that is still at work below a prefix; the empty prefix is the whole table."""

    prefix: str
    expires_at_ms: int


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
        f"{requested_ms / HOUR:g} hours are too short: writers and readers may still use files that young. "
        "Ask for at least 24 hours, or let an admin override the minimum"
    )


class VacuumPlan:
    """Judges pages of a listing one by one, against one set of references: memory is bounded by that set."""

    def __init__(
        self,
        references: References,
        sessions: Iterable[Session],
        *,
        now_ms: int,
        retention_ms: int,
        created_ms: int = 0,
        erased: Mapping[str, int] = NOTHING_ERASED,
    ) -> None:
        self._references = references
        self._created = created_ms
        self._erased = erased
        """Files that an erase deletes whatever their age: their keys, each with the store's time of its removal. What
        was written later under the same name is another file, which may be about to be committed."""
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
        protected = why_protected(one, self._created)
        if protected is Why.NOT_DATA:
            return protected
        if self._references.leads_to(one.path):
            return Why.REFERENCED
        if protected is not None:
            return protected
        if one.modified_ms >= self._old_before:
            removed_at = self._removed_at(one)
            if removed_at is None or one.modified_ms > removed_at:
                return Why.YOUNG if removed_at is None else Why.REWRITTEN
        if self._covered and any(path.startswith(self._covered) for path in (one.path, path_key(one.path))):
            return Why.SESSION
        return None

    def is_erased(self, one: DataObject) -> bool:
        """Whether a version removed this file, and an erase is to delete it."""
        return self._removed_at(one) is not None

    def _removed_at(self, one: DataObject) -> int | None:
        return self._erased.get(one.path, self._erased.get(path_key(one.path)))
