"""Which refusals stay true while another replica may still write the commit.

One commit may be sent to two replicas: by a client that resends it, or by a replica that forwarded it and got no
answer. Let h be the head on which one of them refuses it. The commit is not in a version up to h, since refusals are
only given on a head that was read after the commit arrived. So the other replica can only place it at a version
n > h, and validates it against the state n - 1 >= h. A refusal is final if every head from h on gives it:

- **Faults of the request alone** are final.
- **A conflict with winners in (readVersion, h]** is final: these versions do not change, every later head has them, and
  each rule is a function of the commit and the winner. The exception is `delete-read` by a filter: a replica that no
  longer knows the values of a removed file reports a conflict, another one may still know that they do not match.
- **Recorded progress** (`txn`) is final: what an application has recorded only grows.
- **`expired`** is not: it depends on which old versions could be read here.
- **A file to remove that is not live**, without a removal since readVersion, is not final: it may be added later.
- **A file to add that is live**, **readVersion above the head**, and everything that compares the request to the
  schema, the partition columns or the properties of the head are not final: these change.

Refusals that are not final carry `asOfVersion`, the head they were judged on. They are good advice to a client that
sent its commit once; after a lost answer they leave the outcome unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tarnlog.protocol.commits import Conflicted
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.intent import Intent

AS_OF = "asOfVersion"
_OF_THE_REQUEST = re.compile(r"(/actions(/\d+(/add/path)?)?|/readVersion|/operation\w*|/commitId|)\Z")


def judged_on_head(fields: Mapping[str, Any]) -> bool:
    """Whether a refusal with these fields may differ on another head."""
    return fields.get(AS_OF) is not None


def refused_on(problem: ProblemError, version: int) -> ProblemError:
    """A refusal in FORMING, marked with the head it was judged on: everything there is compared to the head."""
    if problem.slug == "commit-invalid":
        problem.fields.setdefault(AS_OF, version)
    return problem


def refused_before_queueing(problem: ProblemError, version: int) -> ProblemError:
    """A refusal of a request before it was queued, marked unless a fault of the request alone is among its errors."""
    pointers = [str(error.get("pointer", "")) for error in problem.fields.get("errors", ())]
    if any(_OF_THE_REQUEST.match(pointer) for pointer in pointers):
        return problem
    return refused_on(problem, version)


def conflict_on(conflict: Conflicted, intent: Intent, version: int) -> Conflicted:
    """A conflict, marked with the head it was judged on where another replica may come to another result."""
    return conflict if _is_final(conflict, intent) else msgspec.structs.replace(conflict, as_of_version=version)


def _is_final(conflict: Conflicted, intent: Intent) -> bool:
    if conflict.rule == "txn":
        return True
    read_version = intent.read_version
    if conflict.rule == "expired" or not conflict.winners or read_version is None:
        return False
    if any(winner.version <= read_version for winner in conflict.winners):
        return False
    return conflict.rule != "delete-read" or intent.reads.whole_table or not intent.reads.filters
