"""Which commits are well-formed. Everything here holds or fails for the request alone, or for a table's schema.

Rules that need the head (is the path live? does the schema evolve?) are in `finalize`, which FORMING calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import Action, Add, CommitInfo, MetaData, Protocol, Remove, Skip, Txn, only_action
from tarnlog.protocol.commits import CommitRequest
from tarnlog.protocol.paths import check_new_path, path_key
from tarnlog.protocol.predicates import And, Or, Predicate, PredicateError, parse_predicate
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.schema import Schema
from tarnlog_server.core.column_order import DEFAULT_TRUNCATION
from tarnlog_server.core.file_values import FileValues, values_of
from tarnlog_server.core.free_form import MAX_VALUES, free_form_fault
from tarnlog_server.core.intent import Intent, ReadSet, footprint_of
from tarnlog_server.core.match import check_predicate
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.core.version_record import RESERVED

MAX_ERRORS = 20
MAX_TAGS_BYTES = 64 * 1024
MAX_DESCRIPTION = 16_384
MAX_SCHEMA_TEXT = 8 * 2**20
_SHOWN = 200
_HASHED = msgspec.json.Encoder(order="sorted")

Errors = list[dict[str, str]]


SqlReader: TypeAlias = Callable[[str, Schema], Predicate]
"""Reads a SQL predicate on the columns of a schema; PredicateError. TRUE is an `And` of nothing, FALSE an `Or`."""
_EVERY_ROW, _NO_ROW = And(()), Or(())


def request_hash(request: CommitRequest) -> str:
    """SHA-256 over the request's meaning: a resend with another body is told apart from a resend of the same."""
    body = (request.actions, request.reads, request.isolation, request.operation, request.operation_parameters)
    return hashlib.sha256(_HASHED.encode(body)).hexdigest()


def prepare(
    request: CommitRequest,
    commit_id: str,
    *,
    partition_columns: tuple[str, ...],
    schema: Schema,
    now_ms: int,
    truncation: int = DEFAULT_TRUNCATION,
    sql: SqlReader | None = None,
) -> Intent:
    """A commit request as an Intent; ProblemError `commit-invalid` lists every fault with a JSON pointer.

    `sql` reads the filters that are SQL text; without it such a filter is a fault. The request is hashed as it was
    sent, so a resend is recognised after the schema changed, too. Files are judged by the schema of the commit's own
    metaData where it has one, else by `schema`, the table's; FORMING judges them again if that has changed by then.
    """
    errors: Errors = []
    sent = tuple(_actions(request, errors, now_ms))
    actions = tuple(action for _, action in sent)
    footprint = footprint_of(actions)
    ours = footprint.metadata
    judge = schema if ours is None or len(ours.schema_string) > MAX_SCHEMA_TEXT else schema_of(ours.schema_string)
    check = _FileCheck(frozenset(partition_columns), values_of(judge), truncation, errors)
    if len(footprint.adds) == len(actions):
        # The usual commit: only adds of distinct paths.
        for index, action in sent:
            if isinstance(action, Add):
                check.add(index, action)
    else:
        _check_actions(sent, check, errors)
    for pointer, free in (
        ("/operationParameters", request.operation_parameters),
        ("/operationMetrics", request.operation_metrics),
    ):
        if free and (fault := free_form_fault(free)) is not None:
            errors.append({"pointer": pointer, "message": fault})
    if request.operation in RESERVED:
        message = f"{request.operation} is an operation of the service itself: send another name"
        errors.append({"pointer": "/operation", "message": message})
    reads = _reads(request, schema, errors, sql)
    blind = footprint.only_adds and reads.nothing
    if not blind and request.read_version is None:
        errors.append(
            {
                "pointer": "/readVersion",
                "message": "only a blind append (adds alone, nothing read) may leave readVersion out; "
                "send the version this commit was planned on",
            }
        )
    if errors:
        raise invalid(errors)
    try:
        digest = request_hash(request)
        lines = b"\n".join([encode_action(action) for action in actions])
        msgspec.json.encode(request.operation_metrics)
    except (OverflowError, UnicodeEncodeError, msgspec.EncodeError) as error:
        raise invalid([{"pointer": "", "message": f"a value cannot be written as JSON: {error}"}]) from error
    return Intent(
        commit_id=commit_id,
        request_hash=digest,
        actions=actions,
        lines=lines,
        footprint=footprint,
        reads=reads,
        read_version=request.read_version,
        isolation="snapshot" if footprint.rearranges_only else request.isolation,
        operation=request.operation,
        parameters=request.operation_parameters,
        metrics=request.operation_metrics,
        blind=blind,
        partition_columns=partition_columns if footprint.adds else None,
        alone=request.coalesce is False or footprint.metadata is not None or footprint.protocol is not None,
        judged_by=judge if footprint.adds else None,
        doubts=check.doubts,
    )


def invalid(errors: Errors) -> ProblemError:
    """The `commit-invalid` problem for a list of faults."""
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return ProblemError(
        "commit-invalid",
        f"{first['pointer'] or 'the commit'}: {first['message']}{more}; nothing was written",
        errors=errors[:MAX_ERRORS],
    )


def _actions(request: CommitRequest, errors: Errors, now_ms: int) -> Iterator[tuple[int, Action]]:
    """The readable actions, each with its place in the request."""
    for index, line in enumerate(request.actions):
        try:
            action = only_action(line)
        except ValueError as error:
            errors.append({"pointer": f"/actions/{index}", "message": str(error)})
            continue
        if isinstance(action, CommitInfo):
            message = "commitInfo is the service's own; put your facts into operationParameters or operationMetrics"
            errors.append({"pointer": f"/actions/{index}", "message": message})
        elif isinstance(action, Remove) and action.deletion_timestamp is None:
            # Retention counts from here, so it is never left open.
            yield index, msgspec.structs.replace(action, deletion_timestamp=now_ms)
        else:
            yield index, action


def judge_again(actions: tuple[Action, ...], schema: Schema, truncation: int) -> None:
    """ProblemError `commit-invalid` unless the values of all files fit a schema. Cost: as the check in `prepare`."""
    rules = values_of(schema)
    errors: Errors = []
    for index, action in enumerate(actions):
        if isinstance(action, Add) and not rules.fit(action, truncation):
            errors += _value_faults(index, action, rules, truncation)
    if errors:
        raise invalid(errors)


def _value_faults(index: int, add: Add, rules: FileValues, truncation: int) -> Errors:
    return [
        {"pointer": f"/actions/{index}/add{place}", "message": f"{message} (file {add.path[:_SHOWN]!r})"}
        for place, message in rules.faults(add, truncation)
    ]


class _FileCheck:
    """Checks of single file actions."""

    def __init__(self, columns: frozenset[str], rules: FileValues, truncation: int, errors: Errors) -> None:
        self._columns = columns
        self._rules = rules
        self._truncation = truncation
        self._errors = errors
        self.doubts: dict[str, dict[str, str]] = {}
        """Faults of removes and skips by path key. Values of an older log are right if the live file has the same."""

    def add(self, index: int, add: Add) -> None:
        fault = check_new_path(add.path)
        if fault is not None:
            self._errors.append({"pointer": f"/actions/{index}/add/path", "message": fault})
        if add.tags is not None and (fault := free_form_fault(add.tags, max_bytes=MAX_TAGS_BYTES)) is not None:
            self._errors.append({"pointer": f"/actions/{index}/add/tags", "message": fault})
        if add.partition_values.keys() != self._columns:
            pointer = f"/actions/{index}/add/partitionValues"
            self._errors.append({"pointer": pointer, "message": _wanted(self._columns)})
        elif not self._rules.fit(add, self._truncation):
            self._errors += _value_faults(index, add, self._rules, self._truncation)

    def named(self, index: int, action: Remove | Skip) -> None:
        kind = "remove" if isinstance(action, Remove) else "mergeskip"
        fault = partition_fault(action.partition_values, self._columns, self._rules, f"/actions/{index}/{kind}")
        if fault is not None:
            self.doubts[path_key(action.path)] = fault


def partition_fault(
    values: dict[str, str | None] | None, columns: frozenset[str], rules: FileValues, pointer: str = ""
) -> dict[str, str] | None:
    """What is wrong with the partition values that a remove or a skip names; they may name none."""
    if not values:
        return None
    found = ("/partitionValues", _wanted(columns)) if values.keys() != columns else None
    found = found or next(rules.partition_faults(values), None)
    return None if found is None else {"pointer": pointer + found[0], "message": found[1]}


def _wanted(columns: frozenset[str]) -> str:
    wanted = ", ".join(sorted(columns)) or "none: the table is not partitioned"
    return f"needs exactly the table's partition columns ({wanted})"


def _check_actions(sent: tuple[tuple[int, Action], ...], check: _FileCheck, errors: Errors) -> None:
    seen_paths: dict[str, str] = {}
    seen_apps: set[str] = set()
    singles: set[type[Action]] = set()
    for index, action in sent:
        pointer = f"/actions/{index}"
        if isinstance(action, Add):
            check.add(index, action)
        elif isinstance(action, Remove | Skip):
            check.named(index, action)
        if isinstance(action, Add | Remove | Skip):
            key = path_key(action.path)
            if not action.path or "\x00" in action.path:
                errors.append({"pointer": pointer, "message": "path must be a non-empty text without NUL"})
            if key in seen_paths:
                message = f"path {action.path!r} is already in this commit at {seen_paths[key]}; name each file once"
                errors.append({"pointer": pointer, "message": message})
            seen_paths[key] = pointer
        elif isinstance(action, Txn):
            if action.app_id in seen_apps:
                message = f"appId {action.app_id!r} is in this commit twice; keep its highest version"
                errors.append({"pointer": pointer, "message": message})
            seen_apps.add(action.app_id)
        elif isinstance(action, MetaData | Protocol):
            if isinstance(action, MetaData):
                _check_metadata(pointer, action, errors)
            kind = MetaData if isinstance(action, MetaData) else Protocol
            if kind in singles:
                errors.append({"pointer": pointer, "message": "a commit holds at most one metaData and one protocol"})
            singles.add(kind)


def _check_metadata(pointer: str, metadata: MetaData, errors: Errors) -> None:
    if len(metadata.description or "") > MAX_DESCRIPTION:
        message = f"the description has more than {MAX_DESCRIPTION} characters: shorten it"
        errors.append({"pointer": f"{pointer}/metaData/description", "message": message})
    if len(metadata.schema_string) > MAX_SCHEMA_TEXT:
        message = f"the schema has more than {MAX_SCHEMA_TEXT} characters: split the table"
        errors.append({"pointer": f"{pointer}/metaData/schemaString", "message": message})
    if len(metadata.configuration) > MAX_VALUES:
        message = f"there are more than {MAX_VALUES} properties: remove those that are not in use"
        errors.append({"pointer": f"{pointer}/metaData/configuration", "message": message})


def _reads(request: CommitRequest, schema: Schema, errors: Errors, sql: SqlReader | None) -> ReadSet:
    reads = request.reads
    if not (reads.whole_table or reads.filters or reads.paths or reads.app_ids):
        return ReadSet()
    filters: list[Predicate] = []
    whole_table = reads.whole_table
    for index, asked in enumerate(reads.filters):
        pointer = f"/reads/filters/{index}"
        try:
            if isinstance(asked, str) and sql is not None:
                predicate = sql(asked, schema)
                if predicate == _EVERY_ROW:
                    whole_table = True
                elif predicate != _NO_ROW:
                    filters.append(predicate)
                continue
            predicate = parse_predicate(asked, pointer=pointer)
            check_predicate(predicate, schema, pointer=pointer)
            filters.append(predicate)
        except PredicateError as error:
            errors.append({"pointer": getattr(error, "pointer", "") or pointer, "message": str(error)})
    return ReadSet(
        whole_table=whole_table,
        filters=tuple(filters),
        paths=frozenset(path_key(path) for path in reads.paths),
        app_ids=frozenset(reads.app_ids),
    )
