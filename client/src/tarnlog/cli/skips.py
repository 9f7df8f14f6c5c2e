"""Commands about files that an operation could not process: their records, and which are left alone until when."""

from __future__ import annotations

from typing import Annotated

import typer

from tarnlog.cli import humane
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.output import Output, grid, row


def skips(
    ctx: typer.Context,
    table: TableArgument,
    record: Annotated[
        str | None, typer.Option(metavar="PATH", help="Record a skip of this live file; needs --reason.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why the file could not be processed.")] = None,
    operation: Annotated[str, typer.Option(help="What could not process it.")] = "MANUAL",
    cooldown_hours: Annotated[
        float | None, typer.Option(min=0, help="How long it is left alone (default: the table's skip.cooldownHours).")
    ] = None,
    json: Json = False,
) -> None:
    """List the skipped files of a table, or record that one is skipped."""
    if (record is None) != (reason is None):
        raise typer.BadParameter("give --record PATH and --reason TEXT together")
    if record is None and cooldown_hours is not None:
        raise typer.BadParameter("--cooldown-hours goes with --record")
    out = Output(json)
    api = connect(ctx)
    if record is not None and reason is not None:
        made = api.record_skip(table, record, reason=reason, operation=operation, cooldown_hours=cooldown_hours)
        if json:
            out.document(made)
            return
        times = humane.plural(made.skip_count, "time")
        out.note(f"Recorded; {record} was skipped {times} and is left alone until {humane.moment(made.retry_after)}.")
    with out.working(f"Listing the skips of {table}") as work:
        found = list(work.counted(api.skips(table)))
    if json:
        out.lines(found)
        return
    if not found:
        out.note(f"No file of {table} was skipped.")
        return
    shown = grid("file", "skipped", "operation", "reason", "left alone until", right=("skipped",))
    for skip in found:
        until = "" if (skip.retry_after or 0) <= out.now_ms else humane.moment(skip.retry_after)
        row(shown, skip.path, humane.number(skip.skip_count), skip.operation, skip.reason, until)
    out.show(shown)


def cooldowns(ctx: typer.Context, table: TableArgument, json: Json = False) -> None:
    """List the files that are left alone now, and for how long."""
    out = Output(json)
    api = connect(ctx)
    with out.working(f"Listing the cooldowns of {table}"):
        found = api.cooldowns(table)
    if json:
        out.document(found)
        return
    if not found:
        out.note(f"No file of {table} is left alone now.")
        return
    shown = grid("file", "left alone until", "left", right=("left",))
    for path, until in sorted(found.items(), key=lambda item: (item[1], item[0])):
        row(shown, path, humane.moment(until), humane.span(max(0, until - out.now_ms) // 1000))
    out.show(shown)
