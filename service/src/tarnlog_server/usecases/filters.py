"""Filters as requests carry them, made into one tree that is checked against a table's schema."""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from tarnlog.protocol.actions import MetaData
from tarnlog.protocol.plans import PlanRequest
from tarnlog.protocol.predicates import Or, Predicate, PredicateError, parse_predicate, to_builtins
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.schema import Schema
from tarnlog_server.core.match import check_predicate
from tarnlog_server.core.schemas import schema_of
from tarnlog_server.ports.world import World


class ZonedSql(Struct, frozen=True):
    """A SQL filter whose times are those of a zone where they name none."""

    text: str
    zone: str


Filter: TypeAlias = str | ZonedSql | dict[str, Any] | None
OFF_LOOP_ABOVE = 2048
"""Characters of SQL above which parsing takes longer than the way to a thread and back."""


async def understood(asked: Filter, metadata: MetaData | None, world: World) -> Predicate | None:
    """The tree of a filter; None for one that every row passes. ProblemError `filter-invalid`."""
    if asked is None:
        return None
    text = asked.text if isinstance(asked, ZonedSql) else asked
    if isinstance(text, str) and len(text) > OFF_LOOP_ABOVE:
        return await world.run_blocking(lambda: _understood(asked, metadata))
    return _understood(asked, metadata)


def sql_tree(text: str, schema: Schema) -> Predicate:
    """The checked tree of a SQL predicate, with times in UTC where they name no zone. PredicateError."""
    # The SQL reader takes a fifth of a second to load, and a replica whose commits are blind appends needs none.
    from tarnlog_server.codec.sql_filter import parse_sql_filter

    try:
        tree = parse_sql_filter(text, schema)
        check_predicate(tree, schema)
    except PredicateError as error:
        # A pointer would lead into a tree that the client never saw.
        position = getattr(error, "position", None)
        where = "" if position is None else f"at character {position}: "
        raise PredicateError("", where + error.message) from None
    return tree


def told_filter(predicate: Predicate | None) -> dict[str, Any] | UnsetType:
    """What readers are told of a filter; nothing where every row passes, or none (then there are no files either)."""
    return UNSET if predicate is None or predicate == Or(()) else to_builtins(predicate)


def digest_of(*asked: object) -> str:
    """A short name of what was asked: pages of one listing must have been asked the same."""
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:16]


def filter_problem(error: PredicateError) -> ProblemError:
    """What a client is told about a filter: where it is wrong, and what to write instead."""
    pointer = f"/filter{error.pointer}"
    fault: dict[str, Any] = {"pointer": pointer, "message": error.message}
    position = getattr(error, "position", None)
    where = pointer
    if position is not None:
        fault["position"] = position
        where = f"{pointer}, at character {position}"
    return ProblemError("filter-invalid", f"{where}: {error.message}", errors=[fault])


def filter_of(asked: PlanRequest) -> Filter:
    """The filter of a request. The times of a tree are UTC where they name no zone, whatever is asked for."""
    if isinstance(asked.filter, str) and asked.time_zone is not None:
        return ZonedSql(asked.filter, asked.time_zone)
    return asked.filter


def _understood(asked: str | ZonedSql | dict[str, Any], metadata: MetaData | None) -> Predicate | None:
    # The SQL reader takes a fifth of a second to load, and a replica that only commits needs none.
    from tarnlog_server.codec.sql_filter import EVERYTHING, parse_sql_filter

    schema = schema_of(metadata.schema_string if metadata is not None else "")
    try:
        if isinstance(asked, dict):
            tree = parse_predicate(asked)
            check_predicate(tree, schema)
            return tree
        text, zone = (asked, None) if isinstance(asked, str) else (asked.text, asked.zone)
        tree = parse_sql_filter(text, schema, zone)
        try:
            check_predicate(tree, schema)
        except PredicateError as error:
            # Its pointer is into a tree that the client never saw.
            raise PredicateError("", error.message) from None
    except PredicateError as error:
        raise filter_problem(error) from None
    return None if tree == EVERYTHING else tree
