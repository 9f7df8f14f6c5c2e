"""Plans of the fake: every file may match, but one with a cooldown where that is asked for. Sound, and never clever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tarnlog._errors import InvalidRequest
from tarnlog._extras import needed
from tarnlog._fake_table import FakeTable
from tarnlog._plans import ArrowPlan, Filter, Plan, PlanExplanation, filter_document
from tarnlog.protocol.paths import path_key
from tarnlog.protocol.plans import ExplainedFile, Ledger, Reason
from tarnlog.protocol.predicates import And, Not, Or, Predicate, PredicateError, parse_predicate
from tarnlog.protocol.schema import parse_schema_string

_MAPS = ("partitionValues", "tags", "minValues", "maxValues")


def plan(
    table: FakeTable,
    asked: Filter | None,
    version: int | None,
    timestamp_ms: int | None,
    cooling: Mapping[str, int],
) -> Plan:
    """All files of the version, without those in `cooling` (path -> until when)."""
    if version is not None and timestamp_ms is not None:
        raise InvalidRequest("Ask for a version or for a timestamp, not for both.")
    at = table.resolve(version, timestamp_ms)
    state = table.state(at)
    assert state.meta_data is not None, "version 0 has it"
    tree = _understood(asked, state.meta_data.schema_string)
    left_alone = {path_key(path) for path in cooling}
    files = tuple(file for key, file in state.files.items() if key not in left_alone)
    total = len(state.files)
    ledger = Ledger(
        files_total=total,
        files_after_partition_pruning=total,
        files_after_data_skipping=total,
        files_after_cooldowns=len(files),
    )
    return Plan(version=at, ledger=ledger, files=files, filter=tree)


def explained(found: Plan, table: FakeTable, cooling: Mapping[str, int], max_files: int | None) -> PlanExplanation:
    """The same with a line for each file."""
    until = {path_key(path): time for path, time in cooling.items()}
    lines = [
        ExplainedFile(
            path=file.path,
            kept=key not in until,
            because=(Reason(by="cooldown", until=until[key]),) if key in until else (),
        )
        for key, file in table.state(found.version).files.items()
    ]
    return PlanExplanation(
        version=found.version,
        ledger=found.ledger,
        files=tuple(lines[:max_files]),
        manifests=(),
        complete=max_files is None or len(lines) <= max_files,
    )


def as_arrow(found: Plan, table: FakeTable, fields: Sequence[str] | None) -> ArrowPlan:
    """The same as a pyarrow.Table with the service's columns."""
    pa = needed("pyarrow", "arrow")
    texts = pa.map_(pa.string(), pa.string())
    kinds = {"path": pa.string(), "size": pa.int64(), "modificationTime": pa.int64(), "dataChange": pa.bool_()}
    kinds |= {"numRecords": pa.int64(), "stats": pa.string(), **dict.fromkeys(_MAPS, texts)}
    records = [_record(msgspec.to_builtins(file)) for file in found.files]
    present = {"path", "partitionValues", "size", "modificationTime", "dataChange"}.union(*records)
    meta_data = table.state(found.version).meta_data
    columns = meta_data.partition_columns if meta_data is not None else ()
    told = {
        "version": str(found.version),
        "ledger": msgspec.json.encode(found.ledger),
        "partitionColumns": msgspec.json.encode(columns),
    }
    if fields is not None:
        present &= {"path", *fields}
    schema = pa.schema([(name, kind) for name, kind in kinds.items() if name in present], told)
    files = pa.Table.from_pylist(records, schema=schema)
    return ArrowPlan(version=found.version, ledger=found.ledger, files=files, filter=found.filter)


def _record(body: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value.items()) if name in _MAPS else value for name, value in body.items() if value is not None}


def _understood(asked: Filter | None, schema_string: str) -> Predicate | None:
    """The tree, its columns checked; SQL is not read here."""
    document = filter_document(asked)
    if document is None or isinstance(document, str):
        return None
    names = set(parse_schema_string(schema_string).by_name())
    try:
        tree = parse_predicate(document, pointer="/filter")
    except PredicateError as error:
        raise InvalidRequest(str(error), slug="filter-invalid", status=422) from None
    for column in _columns(tree):
        if column.lower().partition(".")[0] not in names and column.lower() not in names:
            detail = f"there is no column {column!r}: use one of the table's schema"
            raise InvalidRequest(detail, slug="filter-invalid", status=422)
    return tree


def _columns(tree: Predicate) -> set[str]:
    match tree:
        case And(args) | Or(args):
            return set().union(*map(_columns, args))
        case Not(arg):
            return _columns(arg)
        case leaf:
            return {leaf.column}
