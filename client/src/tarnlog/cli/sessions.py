"""The command about write sessions: who keeps vacuum away from which files, and until when."""

from __future__ import annotations

from typing import Annotated

import typer

from tarnlog.cli import humane
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.output import Output, grid, row


def sessions(
    ctx: typer.Context,
    table: TableArgument,
    end: Annotated[
        str | None, typer.Option(metavar="ID", help="End this session: vacuum may then delete its files.")
    ] = None,
    json: Json = False,
) -> None:
    """List the write sessions of a table, or end one."""
    out = Output(json)
    api = connect(ctx)
    if end is not None:
        api.end_session(table, end)
    with out.working(f"Listing the sessions of {table}"):
        found = api.sessions(table)
    if json:
        out.lines(found)
        return
    if end is not None:
        out.note(f"Session {end} is ended.")
    if not found:
        out.note(f"Nobody writes to {table} in a session.")
        return
    shown = grid("session", "covers", "expires", "left", right=("left",))
    for session in found:
        left = max(0, session.expires_at - out.now_ms) // 1000
        covers = session.prefix or "the whole table"
        row(shown, session.id, covers, humane.moment(session.expires_at), humane.span(left))
    out.show(shown)
