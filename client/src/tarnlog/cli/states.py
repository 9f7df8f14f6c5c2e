"""Commands about states: write one now, write one from scratch, see how the newest one does."""

from __future__ import annotations

from typing import Annotated

import typer

from tarnlog._results import CheckpointInfo, CleanupInfo, StateInfo
from tarnlog.cli import humane
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.output import Output, grid, row
from tarnlog.protocol.tables import StateFormat


def checkpoint(
    ctx: typer.Context,
    table: TableArgument,
    format_: Annotated[
        StateFormat | None, typer.Option("--format", help="How to write it; by default the table's state.format.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a state of the newest version now, so that the table opens without reading its whole log."""
    out = Output(json)
    with out.working(f"Writing a state of {table}", long=True) as work:
        written = connect(ctx).checkpoint(table, format_, on_progress=work)
    _wrote(out, written)


def compact(ctx: typer.Context, table: TableArgument, json: Json = False) -> None:
    """Write an Avro state from scratch: no tombstones, few manifests. Data files stay as they are."""
    out = Output(json)
    with out.working(f"Compacting the state of {table}", long=True) as work:
        written = connect(ctx).compact(table, on_progress=work)
    _wrote(out, written)


def cleanup(
    ctx: typer.Context,
    table: TableArgument,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    json: Json = False,
) -> None:
    """Delete versions, states and manifests of the log that are older than the table's retention.

    The service does this by itself every few hours. Data files stay: they are vacuum's.
    """
    out = Output(json)
    with out.working(f"Cleaning up the log of {table}", long=True) as work:
        done = connect(ctx).cleanup(table, dry_run=dry_run, on_progress=work)
    if json:
        out.document(done)
        return
    out.show(_cleaned(done))
    out.note(f"{done.message[:1].upper()}{done.message[1:]}.")


def state(ctx: typer.Context, table: TableArgument, json: Json = False) -> None:
    """Show how the newest state of a table does."""
    out = Output(json)
    with out.working(f"Looking at {table}"):
        found = connect(ctx).state(table)
    if json:
        out.document(found)
        return
    if found.version is None:
        out.note(f"{table} has no state yet: it is opened from its log. `tarnlog checkpoint {table}` writes one.")
        return
    out.show(_facts(found))
    if found.needs_compaction:
        out.note(f"It is compacted when the next one is written, or now with `tarnlog compact {table}`.")


def _wrote(out: Output, written: CheckpointInfo) -> None:
    if out.json:
        out.document(written)
        return
    files = humane.plural(written.num_files, "file")
    out.show(f"Wrote a state of {written.table_name} at version {written.checkpoint_version}: {files}.")


def _cleaned(done: CleanupInfo) -> object:
    facts = grid("", "")
    facts.show_header = False
    for label, value in (
        ("table", done.table_name),
        ("status", done.status),
        ("to delete" if done.status == "dry-run" else "deleted", ""),
        ("  versions", done.versions_deleted),
        ("  checkpoints", done.checkpoints_deleted),
        ("  states", done.states_deleted),
        ("  manifests", done.manifests_deleted),
        ("kept", done.files_preserved),
        ("oldest version", done.floor),
        ("newest state", "none" if done.checkpoint_version is None else done.checkpoint_version),
    ):
        row(facts, label, value)
    return facts


def _facts(found: StateInfo) -> object:
    facts = grid("", "")
    facts.show_header = False
    written_by = {"ours": "this service", "foreign": "another writer"}.get(found.status, found.status)
    for label, value in (
        ("table", found.table_name),
        ("version", found.version),
        ("format", found.format),
        ("holds", f"{humane.plural(found.num_files, 'file')}, {humane.size(found.total_bytes)}"),
        ("manifests", found.num_manifests),
        ("tombstones", f"{found.num_tombstones} ({found.tombstone_ratio:.1%} of the files)"),
        ("written by", written_by),
        ("to compact", "yes" if found.needs_compaction else "no"),
    ):
        row(facts, label, value)
    return facts
