"""From an exception to a message that says what to do, and to an exit code.

0 done · 1 a problem · 2 wrong usage · 3 the outcome of a commit is not known · 4 the service cannot be reached
"""

from __future__ import annotations

import sys
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from tarnlog._errors import (
    CommitConflict,
    CommitUnknown,
    Denied,
    Expired,
    ServerFault,
    TarnlogError,
    Unavailable,
    Unreachable,
)
from tarnlog._wording import command_words
from tarnlog.cli.output import console
from tarnlog.protocol.schema import SchemaError

PROBLEM, USAGE, UNKNOWN_OUTCOME, UNREACHABLE = 1, 2, 3, 4


def exit_code(error: TarnlogError) -> int:
    """The code that a script decides by."""
    if isinstance(error, Unreachable):
        return UNREACHABLE
    return UNKNOWN_OUTCOME if isinstance(error, CommitUnknown) else PROBLEM


def advice(error: TarnlogError) -> str | None:
    """What to do at the command line, where the error itself cannot know it."""
    match error:
        case Unreachable():
            return "Is it running? Start it with `tarnlog serve`, or name another with --url or TARNLOG_URL."
        case CommitUnknown(commit_id=commit_id):
            return f"Ask again with `tarnlog commit-status TABLE {commit_id}`."
        case CommitConflict(outcome=outcome):
            if outcome.retry == "never":
                return "Sending it again will not help."
            return "Read the table again and make a new commit on its newest version."
        case Denied():
            return "Give a key with --api-key or TARNLOG_API_KEY."
        case Expired():
            return "`tarnlog history TABLE` shows what is kept."
        case Unavailable(retry_after=float(seconds)):
            return f"Try again in {seconds:g} seconds."
        case ServerFault():
            return "The service's log says more."
    return {
        "table-not-found": "`tarnlog tables` lists the tables there are.",
        "table-exists": "`tarnlog describe TABLE` shows it.",
        "version-not-found": "`tarnlog history TABLE` lists the versions there are.",
    }.get(error.slug)


def _sentence(error: TarnlogError) -> str:
    if isinstance(error, Unreachable) and not error.sent:
        where = f"The service at {error.url}" if error.url else "The service"
        return f"{where} cannot be reached" + (f" ({error.reason})." if error.reason else ".")
    return command_words(error.slug, error.answered)


def report(error: TarnlogError) -> None:
    """Say on stderr what went wrong and what to do."""
    err = console(sys.stderr)
    head = Text("error", style="bold red")
    head.append(f" {error.slug}:" if error.slug else ":", style="not bold")
    err.print(head, Text(_sentence(error)))
    for entry in error.fields.get("errors") or []:
        if isinstance(entry, dict):
            err.print(Text(f"  {entry.get('pointer', '')} {entry.get('message', '')}"))
    if isinstance(error, CommitConflict):
        err.print(Text(f"  rule {error.rule}"))
        for winner in error.winners:
            err.print(Text(f"  won by {winner}"))
        for path in error.paths:
            err.print(Text(f"  about {path}"))
    if (text := advice(error)) is not None:
        err.print(Text(text))


class Commands(TyperGroup):
    """The command group; no command needs to think of errors."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TarnlogError as error:
            report(error)
            raise typer.Exit(exit_code(error)) from None
        except SchemaError as error:
            raise typer.BadParameter(str(error)) from None
