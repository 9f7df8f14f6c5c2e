"""Commands about one commit: send it, and ask what became of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tarnlog._connection import new_commit_id
from tarnlog._errors import CommitUnknown, raise_for_outcome
from tarnlog._results import NotInLog
from tarnlog.cli import humane
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.failures import UNKNOWN_OUTCOME
from tarnlog.cli.output import Output
from tarnlog.protocol.action_json import DECODE_ERRORS
from tarnlog.protocol.actions import CommitInfo, only_action
from tarnlog.protocol.commits import CommitRequest, Committed, Unknown, position


def commit(
    ctx: typer.Context,
    table: TableArgument,
    file: Annotated[Path, typer.Option("--file", "-f", help="The commit as JSON; - reads stdin.")] = Path("-"),
    deadline: Annotated[float, typer.Option(min=0, help="How long to go on trying, in seconds.")] = 60.0,
    json: Json = False,
) -> None:
    """Send a commit, again and again with the same id until it is settled or the time is up."""
    request = _read(file)
    actions = []
    for number, line in enumerate(request.actions):
        try:
            action = only_action(line)
        except ValueError as error:
            raise typer.BadParameter(f"action {number}: {error}") from None
        if isinstance(action, CommitInfo):
            raise typer.BadParameter(f"action {number}: commitInfo is written by the service; leave it out")
        actions.append(action)
    out = Output(json)
    api = connect(ctx)
    commit_id = request.commit_id or new_commit_id()
    if request.commit_id is None:
        out.note(f"commit id {commit_id}")
    with out.working("Committing"):
        outcome = api.commit(
            table,
            actions,
            commit_id=commit_id,
            read_version=request.read_version,
            reads=request.reads,
            isolation=request.isolation,
            operation=request.operation,
            operation_parameters=request.operation_parameters,
            operation_metrics=request.operation_metrics,
            coalesce=request.coalesce,
            deadline=deadline,
        )
    if json:
        out.document(outcome)
    committed = raise_for_outcome(outcome)
    if not json:
        _show(out, committed)


def commit_status(
    ctx: typer.Context,
    table: TableArgument,
    commit_id: Annotated[str, typer.Argument(metavar="COMMIT_ID", help="The id the commit was sent with.")],
    json: Json = False,
) -> None:
    """Ask what became of a commit."""
    out = Output(json)
    found = connect(ctx).commit_status(table, commit_id)
    if json:
        out.document({"outcome": "not-in-log", **msgspec.to_builtins(found)} if isinstance(found, NotInLog) else found)
    match found:
        case Committed():
            if not json:
                _show(out, found)
        case Unknown():
            raise CommitUnknown(found)
        case NotInLog():
            where = f" between versions {found.from_version} and {found.as_of_version}"
            out.note(
                f"{commit_id} is not in the log{where if found.as_of_version is not None else ''}. That is not final: "
                "send the same commit again with the same id to settle it, and delete nothing until then."
            )
            raise typer.Exit(UNKNOWN_OUTCOME)


def _show(out: Output, committed: Committed) -> None:
    again = " (it was there already)" if committed.replayed else ""
    out.show(
        f"Committed at version {position(committed.version, committed.seq)}, "
        f"{humane.moment(committed.timestamp)}{again}\n"
        f"commit id {committed.commit_id}"
    )


def _read(file: Path) -> CommitRequest:
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from None
    try:
        return msgspec.json.decode(content, type=CommitRequest)
    except DECODE_ERRORS as error:
        raise typer.BadParameter(f"{file} holds no commit: {error}") from None
