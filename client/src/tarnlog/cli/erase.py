"""The command that makes removed rows unreadable now."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tarnlog._results import EraseInfo
from tarnlog.cli import humane
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.failures import USAGE
from tarnlog.cli.output import Output, grid, row

SHOWN = 20
PATIENCE = 60.0
"""How long to look for a service that went away while it works."""


def erase(
    ctx: typer.Context,
    table: TableArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be erased.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete what was removed from a table, with the old versions and states that name it. Needs scope admin.

    Afterwards the removed rows cannot be read any more, and time travel begins with the newest version.
    """
    out = Output(json)
    if not dry_run and not yes:
        _ask(out, table)
    doing = "Looking for what to erase in" if dry_run else "Erasing what was removed from"
    with out.working(f"{doing} {table}", long=True) as work:
        done = connect(ctx, PATIENCE).erase(table, dry_run=dry_run, on_progress=work)
    if json:
        out.document(done)
        return
    out.show(_facts(done))
    if done.dry_run and done.examples:
        _show_files(out, done)
    if done.dry_run:  # the service's message speaks of its HTTP call
        out.note(f"`tarnlog erase {table}` erases this; time travel then begins with the newest version.")
    elif done.message:
        out.note(done.message)


def _ask(out: Output, table: str) -> None:
    if not sys.stdin.isatty():
        out.note(
            "Nothing was erased: this asks first, and stdin is not a terminal. "
            f"In a script, say `tarnlog erase {table} --yes`."
        )
        raise typer.Exit(USAGE)
    question = f"Erase everything that was removed from {table}, and all of its older versions?"
    typer.confirm(question, abort=True, err=True)


def _facts(done: EraseInfo) -> object:
    facts = grid("objects", "number", "what becomes of them", right=("number",), prose=("what becomes of them",))
    fate = "would be deleted" if done.dry_run else "deleted"
    files = done.files_found if done.dry_run else done.files_deleted
    size = done.size_bytes_found if done.dry_run else done.size_bytes_deleted
    row(facts, "removed data files", humane.number(files), f"{fate}, {humane.size(size)}")
    emptied = "would be deleted or emptied" if done.dry_run else "deleted or emptied"
    row(facts, "versions", humane.number(done.versions_erased), f"{emptied}: young ones keep the ids of their commits")
    for label, number in (
        ("states", done.states_deleted),
        ("checkpoint files", done.checkpoints_deleted),
        ("manifests", done.manifests_deleted),
    ):
        row(facts, label, humane.number(number), fate)
    for label, number, why in (
        ("in a write session", done.withheld.in_session, f"kept: see `tarnlog sessions {done.table_name}`"),
        ("written again", done.withheld.written_again, "kept: written after their removal, perhaps to be committed"),
        ("older than the table", done.withheld.older_than_table, "kept: they were there when the table was created"),
        ("of another table", done.withheld.other_table, "kept: in or beside another table's log or metadata"),
        ("not data", done.withheld.not_data, "kept: a name that starts with _ or ."),
    ):
        if number:
            row(facts, label, humane.number(number), why)
    return facts


def _show_files(out: Output, done: EraseInfo) -> None:
    files = grid("file", "size", "written", right=("size",))
    for one in done.examples[:SHOWN]:
        row(files, one.path, humane.size(one.size), humane.age(one.modified_time, out.now_ms))
    out.show("", files)
    rest = done.files_found - min(SHOWN, len(done.examples))
    if rest > 0:
        out.note(f"... and {humane.plural(rest, 'more file')}")
