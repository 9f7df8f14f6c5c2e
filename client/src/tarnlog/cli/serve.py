"""`tarnlog serve`: the way to the service, when it is installed."""

from __future__ import annotations

import gc
import importlib
from pathlib import Path
from typing import Annotated

import typer

from tarnlog.cli.failures import PROBLEM
from tarnlog.cli.output import Output


def serve(
    host: Annotated[str | None, typer.Option(help="Where to listen (default 127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Where to listen (default 8420).")] = None,
    warehouse: Annotated[str | None, typer.Option(help="A folder or s3://bucket/prefix (default ./data).")] = None,
    config: Annotated[Path | None, typer.Option(help="A tarnlog.toml.", exists=True, dir_okay=False)] = None,
) -> None:
    """Run the service."""
    try:
        gc.disable()  # loading the service frees nothing; it enables the collector once it is loaded
        # Late: the client is installed alone on most machines.
        run = importlib.import_module("tarnlog_server.cli").serve
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("tarnlog_server"):
            raise
        Output(False).note("The service is not installed here. Install it with `pip install tarnlog-server`.")
        raise typer.Exit(PROBLEM) from None
    raise typer.Exit(run(host=host, port=port, warehouse=warehouse, config=config))
