"""Commands that look whether a table is what its log says, and make broken states again."""

from __future__ import annotations

import typer
from rich.text import Text

from tarnlog._results import AuditInfo
from tarnlog.cli import humane
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.output import Output, grid, row

PATIENCE = 60.0
"""How long to look for a service that went away while it works."""


def verify(ctx: typer.Context, table: TableArgument, json: Json = False) -> None:
    """Check a table whole: its log, its states, its data files. Changes nothing.

    The exit code is 1 when a check fails.
    """
    out = Output(json)
    with out.working(f"Checking {table}", long=True) as work:
        found = connect(ctx, PATIENCE).verify(table, on_progress=work)
    _show(out, found)
    if found.failed:
        if not json:
            out.note(f"docs/operations.md#audits says what each check means. `tarnlog repair {table}` mends states.")
        raise typer.Exit(1)


def repair(ctx: typer.Context, table: TableArgument, json: Json = False) -> None:
    """Make broken states again, from the versions they describe. Version files and data files are never touched.

    The exit code is 1 when something is left that a repair cannot do; that check says what to do.
    """
    out = Output(json)
    with out.working(f"Repairing the states of {table}", long=True) as work:
        done = connect(ctx, PATIENCE).repair(table, on_progress=work)
    _show(out, done)
    if done.failed:
        raise typer.Exit(1)


def _show(out: Output, found: AuditInfo) -> None:
    if out.json:
        out.document(found)
        return
    checks = grid("check", "", "what was found", prose=("what was found",))
    for check in found.checks:
        mark = Text("ok", style="green") if check.ok else Text("FAILED", style="bold red")
        row(checks, check.name, mark, check.detail)
    out.show(checks)
    if found.repaired:
        done = grid("object", "what was done", prose=("what was done",))
        for one in found.repaired:
            row(done, one.object, one.action)
        out.show("", done)
    if found.failed:
        out.note(f"{humane.plural(len(found.failed), 'check')} of {len(found.checks)} failed.")
    else:
        out.note(f"All {len(found.checks)} checks are fine.")
