"""What a command finds around it: how to reach the service. A test hands in another way."""

from __future__ import annotations

from typing import Annotated, Protocol, cast

import typer

from tarnlog._api import TableApi

QUICK = 2.0
"""How long a person waits for a service that does not answer, in seconds."""

PATIENT = 600.0
"""How long the live feed waits for a service that went away."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines: one document, or one to a line.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as namespace.name.")]


class Connector(Protocol):
    """Makes the client of a command."""

    def __call__(self, *, deadline: float) -> TableApi:
        """A client that goes on trying that long."""


class Remote:
    """The service at a URL, with a key; both None for what the environment says."""

    def __init__(self, url: str | None, api_key: str | None) -> None:
        self._url = url
        self._api_key = api_key

    def __call__(self, *, deadline: float) -> TableApi:
        from tarnlog._client import Client  # late: `tarnlog --help` needs no HTTP library

        return Client(self._url, api_key=self._api_key, deadline=deadline)


def connect(ctx: typer.Context, deadline: float = QUICK) -> TableApi:
    """The client of this command."""
    return cast(Connector, ctx.obj)(deadline=deadline)
