"""Restore: the table becomes what it was at an older version, as a new version. Only the log changes."""

from __future__ import annotations

import msgspec
import pyarrow.fs as pafs
from msgspec import Struct

from tarnlog import Expired, InvalidRequest, Reads
from tarnlog.protocol.actions import Action, Add, MetaData
from tarnlog.protocol.paths import path_key
from tarnlog_spark._committing import commit_job, new_job, rebased, removal
from tarnlog_spark._restored_schema import restored_schema
from tarnlog_spark._target import Pinned, Target

_SHOWN = 5


class RestoreResult(Struct, frozen=True, kw_only=True):
    """What a restore did; nothing when the table is as it was then already."""

    version: int
    num_restored_files: int = 0
    num_removed_files: int = 0


def restore(target: Target, *, version: int | None, timestamp: int | str | None) -> RestoreResult:
    """Go back to a version or time. Expired when vacuum has deleted files that it needs.

    The schema of then comes back, in the same commit, where its files cannot be read with the present one: after an
    overwrite with a schema of its own. Columns that were only added since stay, null in the rows of before. Properties
    are never restored.
    """
    then = target.pin(version=version, timestamp=timestamp)
    wanted = {path_key(file.path): file for file in then.files}

    def attempt() -> RestoreResult:
        now = target.pin()
        live = {path_key(file.path): file for file in now.files}
        back = [file for key, file in wanted.items() if key not in live]
        gone = [file for key, file in live.items() if key not in wanted]
        changed = _meta_data_after(then, now, replaces_all=len(gone) == len(live))
        if not back and not gone and changed is None:
            return RestoreResult(version=now.version)
        _check_there(target, back)
        actions: list[Action] = [*([changed] if changed else []), *(removal(file) for file in gone)]
        actions += [msgspec.structs.replace(file, data_change=True) for file in back]
        job = new_job(
            target.table,
            "RESTORE",
            read_version=now.version,
            reads=Reads(whole_table=True),
            # An append in between has files of the schema that goes: they have to be seen, and removed too.
            isolation="serializable" if changed else None,
            parameters={"version": then.version},
        )
        committed = commit_job(target.client, job, actions)
        return RestoreResult(version=committed.version, num_restored_files=len(back), num_removed_files=len(gone))

    return rebased(attempt)


def _meta_data_after(then: Pinned, now: Pinned, *, replaces_all: bool) -> MetaData | None:
    """The metaData that the restore sets; None when it stays. InvalidRequest when the service would take none."""
    table = now.target.table
    if then.partition_columns != now.partition_columns:
        raise InvalidRequest(
            f"{table} was partitioned by {list(then.partition_columns)} at version {then.version}, and is by "
            f"{list(now.partition_columns)} now, so files of then do not fit: write table.read(version={then.version}) "
            "into a new table.",
            slug="partitioning-changed",
        )
    if then.meta_data.schema_string == now.meta_data.schema_string:
        return None
    advice = (
        f"Files of version {then.version} are live now too, so the schema can only grow: write the rows instead, with "
        f"table.write(table.read(version={then.version}), 'overwrite', overwrite_schema=True)."
    )
    schema = restored_schema(then.schema, now.schema, replaces_all=replaces_all, table=table, advice=advice)
    if schema == now.schema:
        return None
    text = then.meta_data.schema_string if schema == then.schema else schema.json()
    return msgspec.structs.replace(now.meta_data, schema_string=text)


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
