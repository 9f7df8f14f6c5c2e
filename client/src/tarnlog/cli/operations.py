"""The command about long calls: what runs in the service, and how far it got."""

from __future__ import annotations

import typer

from tarnlog._long import OperationInfo
from tarnlog.cli import humane
from tarnlog.cli.connector import Json, connect
from tarnlog.cli.output import Output, grid, row


def operations(ctx: typer.Context, json: Json = False) -> None:
    """List the long calls of the service that answers: those that run, and those that ended within the hour."""
    out = Output(json)
    with out.working("Listing operations"):
        found = connect(ctx).operations()
    if json:
        out.lines(found)
        return
    if not found:
        out.note("Nothing takes long at the moment.")
        return
    shown = grid("operation", "what", "table", "status", "progress", "started")
    for one in found:
        row(shown, one.id, one.kind, one.table, one.status, _far(one), humane.age(one.started_at, out.now_ms))
    out.show(shown)


def _far(one: OperationInfo) -> str:
    if one.problem is not None:
        return str(one.problem.get("detail", ""))
    of = "" if one.progress.total is None else f" of {humane.number(one.progress.total)}"
    return f"{humane.number(one.progress.done)}{of} {one.progress.unit}".rstrip()
