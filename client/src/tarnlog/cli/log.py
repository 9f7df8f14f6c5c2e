"""Commands about what is in the log: history, files, diff."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer
from rich.text import Text

from tarnlog._api import Order
from tarnlog.cli import humane, typed
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.difference import Difference, difference
from tarnlog.cli.output import Output, grid, row
from tarnlog.protocol.commits import position

FILE_COLUMNS = ("path", "size", "records", "partition", "modified")


def history(
    ctx: typer.Context,
    table: TableArgument,
    limit: Annotated[int, typer.Option(min=1, help="How many commits.")] = 20,
    from_: Annotated[int | None, typer.Option("--from", min=0, help="The first version.")] = None,
    to: Annotated[int | None, typer.Option(min=0, help="The last version.")] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="Begin with the oldest.")] = False,
    json: Json = False,
) -> None:
    """List the commits of a table, newest first."""
    out = Output(json)
    order: Order = "asc" if oldest_first else "desc"
    commits = connect(ctx).history(table, from_=from_, to=to, order=order, page_size=min(limit, 1000))
    with out.working("Reading history") as work:
        found = list(work.counted(islice(commits, limit)))
    if json:
        out.lines(found)
        return
    named = any(record.committed_by for record in found)
    by = ("by",) if named else ()
    shown = grid("version", "time", "age", *by, "operation", "details", "commit", right=("version",))
    for record in found:
        details = {**record.operation_parameters, **record.operation_metrics}
        row(
            shown,
            position(record.version, record.seq),
            humane.moment(record.timestamp),
            humane.age(record.timestamp, out.now_ms),
            *((record.committed_by or "",) if named else ()),
            record.operation,
            humane.pairs(details),
            record.commit_id or "",
        )
    out.show(shown)
    if len(found) == limit:
        out.note(f"The first {limit}; --limit shows more.")


def files(
    ctx: typer.Context,
    table: TableArgument,
    version: Annotated[int | None, typer.Option(min=0, help="At this version.")] = None,
    timestamp: Annotated[str | None, typer.Option(help="As it was at this time: ISO 8601 or epoch ms.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many files; all of them with --json.")] = None,
    json: Json = False,
) -> None:
    """List the live files of one version of a table."""
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give --version or --timestamp, not both")
    out = Output(json)
    api = connect(ctx)
    at = api.snapshot(table, version=version, timestamp=typed.moment(timestamp))
    most = limit if limit is not None else None if json else 100
    wanted = islice(api.files(table, version=at.version), most)
    if json:
        out.lines(wanted)
        return
    with out.working("Reading files", total=at.num_files if most is None else min(at.num_files, most)) as work:
        found = list(work.counted(wanted))
    shown = grid(*FILE_COLUMNS, right=("size", "records"))
    for file in found:
        row(shown, *_file_cells(file))
    if found:
        out.show(shown)
    total = f"{humane.plural(at.num_files, 'file')}, {humane.size(at.total_bytes)}"
    more = f"; the first {len(found)} are shown, --limit shows more" if len(found) < at.num_files else ""
    out.note(f"version {at.version} of {humane.moment(at.timestamp)}: {total}{more}")


def _file_cells(file: Any) -> tuple[str, ...]:
    return (
        file.path,
        humane.size(file.size),
        humane.number(file.num_records),
        humane.pairs(file.partition_values),
        humane.moment(file.modification_time),
    )


def diff(
    ctx: typer.Context,
    table: TableArgument,
    a: Annotated[int, typer.Argument(metavar="A", min=0, help="From this version")],
    b: Annotated[int, typer.Argument(metavar="B", min=0, help="to this one.")],
    json: Json = False,
) -> None:
    """Show what changed between two versions: files, columns, properties."""
    out = Output(json)
    with out.working(f"Comparing versions {a} and {b}", total=abs(b - a)) as work:
        found = difference(connect(ctx), table, a, b, counted=work.counted)
    if json:
        out.document(found)
    else:
        _show_difference(out, found)


def _show_difference(out: Output, found: Difference) -> None:
    for label, sign, style, group in (
        ("added", "+", "green", found.added),
        ("removed", "-", "red", found.removed),
        ("rewritten", "~", "yellow", found.rewritten),
    ):
        for file in group:
            size = humane.size(file.size) if file.size is not None else ""
            out.show(Text(f"{sign} {file.path}  {size}".rstrip(), style=style))
        if group:
            out.note(f"{humane.plural(len(group), 'file')} {label}")
    for kind, changes in (("column", found.columns), ("property", found.properties), ("table", found.table)):
        for change in changes:
            before = "-" if change.before is None else change.before
            after = "-" if change.after is None else change.after
            out.show(Text(f"{kind} {change.name}: {before} → {after}", style="cyan"))
    if found.is_empty:
        out.note("No difference.")
