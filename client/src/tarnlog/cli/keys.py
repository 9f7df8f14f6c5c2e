"""The command that makes an API key. It needs no service: a key is a secret and its SHA-256."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Annotated, Any, Literal

import msgspec
import typer

from tarnlog.cli.connector import Json
from tarnlog.cli.output import Output

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
Scope = Literal["read", "write", "admin"]

app = typer.Typer(no_args_is_help=True, help="Make API keys.")


@app.command("new")
def new(
    key_id: Annotated[
        str | None, typer.Option("--id", help="Who uses it: 1 to 64 letters, digits, _ or -; it is in the audit log.")
    ] = None,
    scope: Annotated[Scope, typer.Option(help="What it may do; each includes the one before.")] = "read",
    namespaces: Annotated[
        str | None, typer.Option(help="Only these namespaces, a pattern with * and ?; all when left out.")
    ] = None,
    json: Json = False,
) -> None:
    """Make an API key: `id.secret` for the client, and the entry with its SHA-256 for TARNLOG_API_KEYS.

    The secret is shown once and kept nowhere.
    """
    name = f"key-{secrets.token_hex(4)}" if key_id is None else key_id
    if not _ID.fullmatch(name):
        raise typer.BadParameter(f"--id {name!r}: write 1 to 64 letters, digits, _ or -")
    if namespaces is not None and not 1 <= len(namespaces) <= 256:
        raise typer.BadParameter("--namespaces: write a pattern of 1 to 256 characters, such as 'sales*'")
    secret = secrets.token_urlsafe(32)
    entry: dict[str, Any] = {"id": name, "sha256": hashlib.sha256(secret.encode()).hexdigest(), "scope": scope}
    if namespaces is not None:
        entry["namespaces"] = namespaces
    out = Output(json)
    if json:
        out.document({"key": f"{name}.{secret}", "entry": entry})
        return
    out.note("For the client and the command line. The secret is shown only now:")
    out.show(f"TARNLOG_API_KEY={name}.{secret}")
    out.note("For the service, as an entry of the list TARNLOG_API_KEYS; then start it again:")
    out.show(f"TARNLOG_API_KEYS='[{_quoted(msgspec.json.encode(entry).decode())}]'")


def _quoted(text: str) -> str:
    """For use between single quotes in a shell."""
    return text.replace("'", "'\\''")
