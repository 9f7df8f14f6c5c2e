"""Restore: the table becomes what it was at an older version, as a new version. Only the log changes."""

from __future__ import annotations

import msgspec
import pyarrow.fs as pafs
from msgspec import Struct

from tarnlog import Expired, Reads
from tarnlog.protocol.actions import Action, Add
from tarnlog.protocol.paths import path_key
from tarnlog_spark._committing import commit_job, new_job, rebased, removal
from tarnlog_spark._target import Target

_SHOWN = 5


class RestoreResult(Struct, frozen=True, kw_only=True):
    """What a restore did; nothing when the table has the same files already."""

    version: int
    num_restored_files: int = 0
    num_removed_files: int = 0


def restore(target: Target, *, version: int | None, timestamp: int | str | None) -> RestoreResult:
    """Go back to a version or time. Expired when vacuum has deleted files that it needs.

    The schema stays as it is now: tables only gain columns, and files of before have null in them.
    """
    then = target.pin(version=version, timestamp=timestamp)
    wanted = {path_key(file.path): file for file in then.files}

    def attempt() -> RestoreResult:
        now = target.pin()
        live = {path_key(file.path): file for file in now.files}
        back = [file for key, file in wanted.items() if key not in live]
        gone = [file for key, file in live.items() if key not in wanted]
        if not back and not gone:
            return RestoreResult(version=now.version)
        _check_there(target, back)
        actions: list[Action] = [removal(file) for file in gone]
        actions += [msgspec.structs.replace(file, data_change=True) for file in back]
        job = new_job(
            target.table,
            "RESTORE",
            read_version=now.version,
            reads=Reads(whole_table=True),
            parameters={"version": then.version},
        )
        committed = commit_job(target.client, job, actions)
        return RestoreResult(version=committed.version, num_restored_files=len(back), num_removed_files=len(gone))

    return rebased(attempt)


def _check_there(target: Target, files: list[Add]) -> None:
    """A version whose files are gone cannot come back: better to hear it now than at the next read."""
    storage = target.storage
    found = storage.filesystem.get_file_info([storage.path(file.path) for file in files])
    lost = [file.path for file, info in zip(files, found, strict=True) if info.type != pafs.FileType.File]
    if lost:
        shown = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else "")
        raise Expired(
            f"{target.table} cannot be restored to that version: {len(lost)} of its data files are gone, deleted by "
            f"vacuum or by hand ({shown}). Restore a newer version.",
            slug="data-file-missing",
            status=410,
        )
