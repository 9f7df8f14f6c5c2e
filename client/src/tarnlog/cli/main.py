"""The `tarnlog` command: its global options and its commands."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from tarnlog.cli import (
    audits,
    commits,
    erase,
    index,
    keys,
    log,
    operations,
    plans,
    serve,
    sessions,
    skips,
    states,
    tables,
    vacuum,
    watch,
)
from tarnlog.cli.connector import Remote
from tarnlog.cli.failures import Commands

app = typer.Typer(
    name="tarnlog",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Transactional tables on object storage: run the service, look into tables, commit.",
    epilog="Exit codes: 1 a problem, 2 wrong usage, 3 outcome not known, 4 service not reached.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tarnlog {installed_version('tarnlog')}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Option(envvar="TARNLOG_URL", help="The service (default http://127.0.0.1:8420).")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="TARNLOG_API_KEY", show_envvar=True, help="The key, as id.secret.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """What holds for every command; whoever calls with an object of their own has decided how to connect."""
    if ctx.obj is None:
        ctx.obj = Remote(url, api_key)


_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Service": {
        "serve": serve.serve,
        "operations": operations.operations,
        "migrate": index.migrate,
        "rebuild": index.rebuild,
    },
    "Tables": {
        "tables": tables.tables,
        "create": tables.create,
        "describe": tables.describe,
        "alter": tables.alter,
        "drop": tables.drop,
        "register": tables.register,
    },
    "Log": {
        "history": log.history,
        "files": log.files,
        "plan": plans.plan,
        "diff": log.diff,
        "watch": watch.watch,
        "commit": commits.commit,
        "commit-status": commits.commit_status,
    },
    "Data files": {
        "vacuum": vacuum.vacuum,
        "erase": erase.erase,
        "sessions": sessions.sessions,
        "skips": skips.skips,
        "cooldowns": skips.cooldowns,
    },
    "States": {
        "state": states.state,
        "checkpoint": states.checkpoint,
        "compact": states.compact,
        "cleanup": states.cleanup,
        "verify": audits.verify,
        "repair": audits.repair,
    },
}
for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(keys.app, name="key", rich_help_panel="Service")


def main() -> None:
    """The entry point."""
    app()
