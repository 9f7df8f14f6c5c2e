"""Optimize: small files of a partition become few larger ones, each group in one task, without a shuffle; or the rows
of a partition are ordered over its files (`_zorder`).

A file that cannot be understood is left where it is: it is recorded as skipped and not touched again until its cooldown
ends, while the others go on. Storage that does not answer ends an optimize: it says nothing about the files. Rows do
not change, so appends and optimize never get in each other's way. When another commit removed an input meanwhile, only
the group that used it is given up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from tarnlog import Corrupt, InvalidRequest, NotFound
from tarnlog.protocol.actions import Action, Add
from tarnlog.protocol.paths import path_key
from tarnlog_spark._arguments import CONDITION, NAMES, WHOLE, takes
from tarnlog_spark._committing import REBASES, commit_job, discard, files_in_flight, new_job, removal
from tarnlog_spark._conditions import exact_filter
from tarnlog_spark._errors import ConflictError
from tarnlog_spark._partitions import partition_of
from tarnlog_spark._planning import Plan
from tarnlog_spark._rewriting import Group, Merged, storage_failures, whole_file
from tarnlog_spark._target import Pinned, Target
from tarnlog_spark._writes import in_session
from tarnlog_spark._writing import TARGET_BYTES, WriteTask, decode_message, encode_message, write_batches
from tarnlog_spark._zorder import group_partitions, order_columns, order_groups

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    Condition = str | Column

SMALL = 0.75
"""A file below so much of the target size is small."""

MAX_GROUP_FILES = 1000


class OptimizeResult(Struct, frozen=True, kw_only=True):
    """What an optimize did; `skipped` maps files that could not be read to why, `cooling` counts those left alone."""

    version: int | None
    num_removed_files: int = 0
    num_added_files: int = 0
    num_groups_given_up: int = 0
    skipped: dict[str, str] = {}
    cooling: int = 0


class Optimize:
    """An optimize that is being described; nothing happens before `execute_compaction` or `execute_zorder_by`."""

    def __init__(self, target: Target, *, cooldown_hours: float | None, where: Condition | None = None) -> None:
        self._target = target
        self._cooldown_hours = cooldown_hours
        self._where = where

    @takes(condition=CONDITION)
    def where(self, condition: Condition) -> Optimize:
        """Only files that may hold rows which match; a condition on partition columns chooses whole partitions.

        InvalidRequest, when it is executed, for one that is not understood exactly: nothing is rewritten then.
        """
        return Optimize(self._target, cooldown_hours=self._cooldown_hours, where=condition)

    @takes(target_bytes=WHOLE)
    def execute_compaction(self, target_bytes: int | None = None) -> OptimizeResult:
        """Make large files out of small ones."""
        return self._execute(target_bytes, None)

    @takes(columns=NAMES, target_bytes=WHOLE)
    def execute_zorder_by(self, *columns: str, target_bytes: int | None = None) -> OptimizeResult:
        """Order the rows of each partition over its files so that each file is narrow in all of these columns, and a
        filter on any of them reads few files. Rewrites large files too, unless they are all of one such order."""
        return self._execute(target_bytes, columns)

    def _execute(self, target_bytes: int | None, order: Sequence[str] | None) -> OptimizeResult:
        if target_bytes is not None and target_bytes <= 0:
            raise InvalidRequest("target_bytes is a number of bytes above 0.", slug="option-invalid")
        target = self._target
        pinned = self._planned()
        cooldowns = {path_key(path) for path in target.client.cooldowns(target.table)}
        ready = [file for file in pinned.files if path_key(file.path) not in cooldowns]
        task = pinned.task(target_bytes=target_bytes, data_change=False)
        told: dict[str, object] = {"predicate": "" if self._where is None else str(self._where)}
        if order is None:
            columns, groups = None, group_small(ready, task.target_bytes)
        else:
            columns = order_columns(pinned, task, order)
            groups = group_partitions(ready, task, columns)
            told["zOrderBy"] = list(columns)
        cooling = len(pinned.files) - len(ready)
        if not groups:
            return OptimizeResult(version=None, cooling=cooling)
        with in_session(target) as session, files_in_flight(pinned.storage) as written:
            with storage_failures():
                if columns is None:
                    merged = _run(target.spark, groups, task)
                else:
                    merged = order_groups(pinned, groups, task, columns)
            written += [add for part in merged for add in part.added]
            skipped = self._record(pinned, merged)
            session.check()
            version, done = self._commit(pinned, [part for part in merged if part.added], told)
        return OptimizeResult(
            version=version,
            num_removed_files=sum(len(part.used) for part in done),
            num_added_files=sum(len(part.added) for part in done),
            num_groups_given_up=sum(1 for part in merged if part.added) - len(done),
            skipped=skipped,
            cooling=cooling,
        )

    def _planned(self) -> Pinned:
        """The table now, with the files that the condition chooses. One that cannot be understood is refused here: no
        Spark applies it to rows afterwards, as it does for a read, so that everything would be rewritten."""
        target, pinned = self._target, self._target.pin(files=False)
        wanted = None
        if self._where is not None:
            wanted = exact_filter(target.spark, self._where, pinned.meta_data, "optimize")
        body, zone = (None, None) if wanted is None else (wanted.filter, wanted.time_zone)
        found = target.client.plan_arrow(target.table, body, time_zone=zone, version=pinned.version)
        return Pinned(self._target, Plan(version=pinned.version, meta_data=pinned.meta_data, listing=found.files))

    def _record(self, pinned: Pinned, merged: Sequence[Merged]) -> dict[str, str]:
        """Write down what could not be read. A file that somebody removed meanwhile needs no record."""
        skipped = {path: why for part in merged for path, why in part.skipped.items()}
        files = {file.path: file for file in pinned.files}
        target = self._target
        for path, why in skipped.items():
            try:
                target.client.record_skip(
                    target.table,
                    path,
                    reason=why,
                    operation="OPTIMIZE",
                    partition_values=files[path].partition_values,
                    size=files[path].size,
                    cooldown_hours=self._cooldown_hours,
                )
            except (InvalidRequest, NotFound) as error:
                if error.slug not in ("commit-invalid", "file-not-found"):
                    raise
        return skipped

    def _commit(
        self, pinned: Pinned, merged: Sequence[Merged], told: Mapping[str, object]
    ) -> tuple[int | None, list[Merged]]:
        """Commit the groups whose inputs are all still there; the version, and those groups."""
        target, left = self._target, list(merged)
        files = {file.path: file for file in pinned.files}
        version = pinned.version
        for attempt in range(REBASES):
            if not left:
                return None, []
            actions: list[Action] = [removal(files[path], data_change=False) for part in left for path in part.used]
            actions += [add for part in left for add in part.added]
            job = new_job(target.table, "OPTIMIZE", read_version=version, parameters=told)
            try:
                return commit_job(target.client, job, actions).version, left
            except ConflictError as error:
                if error.retry != "rebase" or attempt == REBASES - 1:
                    raise
            now = target.pin()
            live = {path_key(file.path) for file in now.files}
            dead = [part for part in left if any(path_key(path) not in live for path in part.used)]
            for part in dead:
                discard(pinned.storage, part.added)
            left, version = [part for part in left if part not in dead], now.version
        return None, []


def group_small(files: Sequence[Add], target_bytes: int = TARGET_BYTES) -> list[Group]:
    """Small files of a partition in groups of about the target size: first fit, the largest first. A lone one stays."""
    by_partition: dict[Any, list[Add]] = {}
    for file in files:
        if file.size < target_bytes * SMALL:
            by_partition.setdefault(partition_of(file.partition_values), []).append(file)
    groups: list[list[Add]] = []
    for small in by_partition.values():
        open_groups: list[tuple[int, list[Add]]] = []
        for file in sorted(small, key=lambda file: (-file.size, file.path)):
            for place, (size, members) in enumerate(open_groups):
                if size + file.size <= target_bytes and len(members) < MAX_GROUP_FILES:
                    members.append(file)
                    open_groups[place] = (size + file.size, members)
                    break
            else:
                open_groups.append((file.size, [file]))
        groups += [members for _, members in open_groups if len(members) > 1]
    return [Group(tuple(members)) for members in groups]


def _run(spark: SparkSession, groups: Sequence[Group], task: WriteTask) -> list[Merged]:
    """Every group in a task of its own; only what winning attempts wrote comes back."""
    whole_files = WriteTask(
        storage=task.storage,
        schema_string=task.schema_string,
        partition_columns=task.partition_columns,
        target_bytes=2**62,  # the group was made to the target size: it becomes one file
        cut_at=task.cut_at,
        compression=task.compression,
        data_change=False,
    )
    listed = [[encode_message(file) for file in group.files] for group in groups]

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                files = [decode_message(text) for text in listed[number]]
                yield pa.RecordBatch.from_pydict({"message": [_told(merge_group(whole_files, files))]})

    rows = spark.range(0, len(listed), 1, len(listed)).mapInArrow(run, "message string").collect()
    return [_heard(row[0]) for row in rows]


def merge_group(task: WriteTask, files: Sequence[Add]) -> Merged:
    """One new file out of those that can be read whole; fewer than two are left as they are.

    Each file is read to its end before any of its rows is written: half of a broken file is worth nothing. So memory
    is one small file and one row group.
    """
    schema, used, skipped = task.schema(), list[str](), dict[str, str]()

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            try:
                rows = list(whole_file(task, schema, file))
            except Corrupt as error:
                skipped[file.path] = error.detail
                continue
            used.append(file.path)
            yield from rows

    added = tuple(write_batches(task, batches()))
    if len(used) < 2:
        discard(task.storage, added)
        return Merged((), (), skipped)
    return Merged(tuple(used), added, skipped)


def _told(merged: Merged) -> str:
    added = [encode_message(add) for add in merged.added]
    return json.dumps({"used": merged.used, "added": added, "skipped": merged.skipped})


def _heard(text: str) -> Merged:
    told = json.loads(text)
    return Merged(tuple(told["used"]), tuple(decode_message(add) for add in told["added"]), told["skipped"])
