"""Commands about the index: bring its schema up to date, and make it again from storage."""

from __future__ import annotations

import enum
import importlib
from pathlib import Path
from typing import Annotated

import typer

from tarnlog.cli import humane
from tarnlog.cli.connector import Json, connect
from tarnlog.cli.failures import PROBLEM
from tarnlog.cli.output import Output


class Direction(enum.StrEnum):
    """What to do with the schema."""

    UP = "up"
    DOWN = "down"
    CURRENT = "current"


def migrate(
    direction: Annotated[Direction, typer.Argument(help="up, down, or only show the current revision.")] = Direction.UP,
    revision: Annotated[
        str | None, typer.Argument(help="Which revision to go to: the newest for up, none at all for down.")
    ] = None,
    warehouse: Annotated[str | None, typer.Option(help="A folder or s3://bucket/prefix (default ./data).")] = None,
    config: Annotated[Path | None, typer.Option(help="A tarnlog.toml.", exists=True, dir_okay=False)] = None,
) -> None:
    """Bring the schema of the index database (TARNLOG_DATABASE_URL) up to date, or take it back.

    The index is a cache: going down loses rows that are read from storage again.
    """
    out = Output(False)
    try:
        # Late: the client is installed alone on most machines.
        run = importlib.import_module("tarnlog_server.migrating").migrate
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("tarnlog_server"):
            raise
        out.note("The service is not installed here. Install it with `pip install tarnlog-server`.")
        raise typer.Exit(PROBLEM) from None
    ok, message = run(direction.value, revision, warehouse=warehouse, config=config)
    if not ok:
        out.note(message)
        raise typer.Exit(PROBLEM)
    out.show(message)


def rebuild(
    ctx: typer.Context,
    table: Annotated[str | None, typer.Argument(help="One table; without it, all of them.")] = None,
    json: Json = False,
) -> None:
    """Make the index of a table again from storage, or that of every table. Commits and reads go on."""
    out = Output(json)
    client = connect(ctx)
    names = [table] if table is not None else [entry.name for entry in client.list_tables()]
    made = []
    for name in names:
        with out.working(f"Rebuilding the index of {name}", long=True) as work:
            done = client.rebuild(name, on_progress=work)
        made.append(done)
        if not json:
            versions = humane.plural(done.versions, "version")
            out.show(f"The index of {name} holds {versions}, {done.first_version} to {done.last_version}.")
    if json:
        out.document(made[0] if table is not None else made)
    elif not names:
        out.note("There are no tables.")
