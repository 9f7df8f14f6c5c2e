"""Scripted answers of the fake: a class becomes an outcome with plausible fields."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from tarnlog._fake_table import rejected
from tarnlog.protocol.commits import Conflicted, NotNow, Rejected, Unknown, Winner
from tarnlog.protocol.problems import ProblemError

Scripted: TypeAlias = Conflicted | Rejected | NotNow | Unknown
CONFLICT_RULES = ("expired", "protocol", "metadata", "txn", "append", "delete-read", "delete-delete")
"""The rules by which the service refuses a commit."""


def scripted(outcome: Scripted | type[Scripted], fields: dict[str, Any]) -> Scripted:
    """The outcome with these fields; those that a class leaves open are plausible. TypeError for fields it lacks."""
    made = outcome if not isinstance(outcome, type) else _plausible(outcome, fields)
    if isinstance(made, Conflicted) and (rule := fields.get("rule", made.rule)) not in CONFLICT_RULES:
        raise ValueError(f"{rule!r} is no conflict rule: use one of {', '.join(CONFLICT_RULES)}")
    return msgspec.structs.replace(made, **fields)


def _plausible(kind: type[Scripted], fields: dict[str, Any]) -> Scripted:
    if kind is Unknown:
        return Unknown(commit_id="", retry_after=1.0)
    if kind is NotNow:
        problem = ProblemError("commit-contended", "Scripted: resend this commit.").document()
        return NotNow(commit_id="", problem=problem, retry_after=1.0)
    if kind is Rejected:
        return rejected("", "commit-invalid", "Scripted: the commit is not valid.")
    rule = fields.get("rule", "append")
    return Conflicted(
        commit_id="",
        rule=rule,
        detail=f"Scripted: the rule {rule} is broken.",
        winners=(Winner(version=0, seq=0, commit_id=None, operation="SCRIPTED"),),
        retry="never" if rule == "txn" else "rebase",
    )
