"""The command about data files that nothing leads to: look at them, then delete them."""

from __future__ import annotations

from typing import Annotated

import typer

from tarnlog._results import VacuumInfo
from tarnlog.cli import humane
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.output import Output, grid, row

SHOWN = 20
PATIENCE = 60.0
"""How long to look for a service that went away while it works."""


def vacuum(
    ctx: typer.Context,
    table: TableArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run/--delete", help="Only look, or delete.")] = True,
    retention_hours: Annotated[
        float | None, typer.Option(help="Keep files younger than this; by default deletedFileRetention.duration.")
    ] = None,
    override_minimum: Annotated[
        bool, typer.Option("--override-minimum", help="Allow less than 24 hours. Needs scope admin.")
    ] = False,
    json: Json = False,
) -> None:
    """Find data files that no kept version leads to, no write session covers, and that are old; delete them."""
    out = Output(json)
    doing = "Looking for files to delete in" if dry_run else "Deleting files of"
    with out.working(f"{doing} {table}", long=True) as work:
        done = connect(ctx, PATIENCE).vacuum(
            table,
            dry_run=dry_run,
            retention_hours=retention_hours,
            override_minimum=override_minimum,
            on_progress=work,
        )
    if json:
        out.document(done)
        return
    out.show(_facts(done))
    if done.dry_run and done.examples:
        _show_files(out, done)
        out.note(f"`tarnlog vacuum {table} --delete` deletes them.")


def _facts(done: VacuumInfo) -> object:
    facts = grid("objects", "number", "what becomes of them", right=("number",), prose=("what becomes of them",))
    fate = "would be deleted" if done.dry_run else "deleted"
    count = done.orphaned_files_found if done.dry_run else done.orphaned_files_deleted
    size = done.size_bytes_found if done.dry_run else done.size_bytes_deleted
    row(facts, "nothing leads to them", humane.number(count), f"{fate}, {humane.size(size)}")
    kept = done.kept
    for label, number, why in (
        ("referenced", kept.referenced, "kept: a version that can be read has them, or had them until lately"),
        ("young", kept.young, f"kept: not older than {done.retention_hours:g} hours"),
        ("in a write session", kept.in_session, f"kept: see `tarnlog sessions {done.table_name}`"),
        ("not data", kept.not_data, "kept: a name that starts with _ or ."),
        ("of another table", kept.other_table, "kept: in or beside another table's log or metadata"),
        ("older than the table", kept.older_than_table, "kept: they were there when the table was created"),
    ):
        if number:
            row(facts, label, humane.number(number), why)
    return facts


def _show_files(out: Output, done: VacuumInfo) -> None:
    files = grid("file", "size", "written", right=("size",))
    for one in done.examples[:SHOWN]:
        row(files, one.path, humane.size(one.size), humane.age(one.modified_time, out.now_ms))
    out.show("", files)
    rest = done.orphaned_files_found - min(SHOWN, len(done.examples))
    if rest > 0:
        out.note(f"... and {humane.plural(rest, 'more file')}")
