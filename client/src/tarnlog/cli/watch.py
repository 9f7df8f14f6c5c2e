"""`tarnlog watch`: the live changes of a table, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tarnlog._results import VersionChange
from tarnlog.cli import humane
from tarnlog.cli.connector import PATIENT, Json, TableArgument, connect
from tarnlog.cli.output import Output


def watch(
    ctx: typer.Context,
    table: TableArgument,
    from_: Annotated[int | None, typer.Option("--from", min=0, help="Begin with this version, not with now.")] = None,
    json: Json = False,
) -> None:
    """Show the changes of a table as they are committed; Ctrl-C ends it."""
    out = Output(json)
    after = connect(ctx).get_table(table).version if from_ is None else from_ - 1
    out.note(f"Watching {table} from version {after + 1} on; Ctrl-C ends it.")
    try:
        for change in connect(ctx, deadline=PATIENT).events(table, after=after):
            if json:
                out.document(change)
            else:
                out.show(_line(change))
            out.flush()
    except KeyboardInterrupt:
        # This is how one leaves; the cursor is beside a ^C.
        out.note("")


def _line(change: VersionChange) -> Text:
    line = Text(f"{change.version:>6}  {humane.moment(change.timestamp)}  ")
    if change.adds:
        size = humane.size(sum(file.size for file in change.adds))
        line.append(f"+{humane.plural(len(change.adds), 'file')} ({size})  ", style="green")
    if change.removes:
        line.append(f"-{humane.plural(len(change.removes), 'file')}  ", style="red")
    operations: dict[str, int] = {}
    for record in change.commits:
        operations[record.operation] = operations.get(record.operation, 0) + 1
    line.append(", ".join(name if count == 1 else f"{count} × {name}" for name, count in operations.items()))
    return line
