"""Where a commit is best written: here, or at the replica that holds the table's lease.

A lease only brings the commits of one table together, so that they share versions. It never decides whether a commit
may be written: every answer below leads to the same log, which takes each commit id once.
"""

from __future__ import annotations

import enum

from msgspec import Struct

FORWARDED_BYTES = 8 * 1024 * 1024
"""A larger commit goes into a version alone wherever it is written: sending it on would gain nothing."""
FIRST_DISTRUST_SECONDS = 1.0
LONGEST_DISTRUST_SECONDS = 30.0
UNSETTLED_SECONDS = 900.0
"""How long a replica remembers that another one may still write a commit: far longer than any deadline of a commit."""
UNSETTLED_IDS = 10_000
"""How many of them; the oldest are dropped."""
ASKED_AGAIN_SHARE = 2 / 3
"""A lease is asked for again once this share of its time is left: two more tries fit in before it ends."""


class Owner(Struct, frozen=True):
    """A replica: an id of its own for each start, and where the others reach it."""

    id: str
    url: str


class Held(Struct, frozen=True):
    """Who holds a table's lease, as this replica last heard, and until when by its own monotonic clock."""

    owner: Owner
    until: float


class Route(enum.Enum):
    """What to do with a commit."""

    HERE = "here"
    """Write it here."""
    HERE_AND_TAKE = "here-and-take"
    """Write it here at once; the lease is tried for behind it."""
    FORWARD = "forward"
    """Send it to the owner."""


class Verdict(enum.Enum):
    """What an answer of the owner is worth."""

    RELAY = "relay"
    """It settles the commit, or says what everyone would: the client gets it."""
    NOT_WRITTEN = "not-written"
    """The owner did not write it and will not: it is written here as if nothing had been sent."""
    UNSURE = "unsure"
    """The owner may have written it or may still do so: it is written here under the same id, and what is not settled
    by that is told as unknown."""


_RELAYED = frozenset(
    {
        "commit-conflict",
        "commit-id-reused",
        "commit-invalid",
        "commit-too-large",
        "foreign-writer-detected",
        "protocol-not-supported",
        "table-read-only",
        "too-many-waiting",  # a second queue beside a full one would only make it slower
    }
)
_NOT_WRITTEN = frozenset(
    {
        "clock-skew",
        "commit-contended",
        "commit-id-expired",
        "forbidden",
        "not-ready",
        "request-invalid",
        "request-timeout",  # it never had the whole commit
        "shutting-down",
        "storage-refused",
        "storage-unavailable",
        "table-name-invalid",
        "table-not-found",
        "too-many-connections",
        "unauthenticated",
    }
)
"""What the owner's application answers before it writes, or once it is certain that it did not. No other code counts:
an older release answers `headers-too-large` to commits that it has written, and a newer one may have new codes."""
_OF_THE_TABLE = frozenset({"commit-contended", "commit-unknown", "storage-unavailable", "table-not-found"})
_OF_THE_CLOCKS = frozenset({"clock-skew", "commit-id-expired"})
"""Judged by the owner's clock: they are not relayed but judged again by the clock here."""
_TRUE_EVERYWHERE = frozenset({"commit-conflict", "commit-id-reused", "commit-invalid", "commit-unknown"})


def route(held: Held | None, me: str, now: float, distrusted_until: float) -> Route:
    """Where to write a commit to a table, from what is known without asking anyone."""
    if held is None or held.until <= now:
        return Route.HERE_AND_TAKE
    if held.owner.id == me or now < distrusted_until:
        return Route.HERE
    return Route.FORWARD


def judge(slug: str, *, committed: bool) -> Verdict:
    """An owner's answer: whether it says that this very commit is in the log, else the code of its problem document.

    Without a code it is not an answer of a replica, but of something in between.
    """
    if committed or slug in _RELAYED:
        return Verdict.RELAY
    return Verdict.NOT_WRITTEN if slug in _NOT_WRITTEN else Verdict.UNSURE


def blames_owner(slug: str) -> bool:
    """Whether an answer that was not relayed is a reason to send nothing more to the owner for a while."""
    return slug not in _OF_THE_TABLE and slug not in _OF_THE_CLOCKS


def settles(slug: str, *, on_head: bool) -> bool:
    """Whether a refusal here is true of a commit that another replica may still be writing.

    Only what every replica says on every head from here on is: it lost, or it can never be written as it is. A refusal
    that was judged on the head (`core.finality`) leaves the commit open.
    """
    return slug in _TRUE_EVERYWHERE and not on_head


def distrust_seconds(failures: int) -> float:
    """How long nothing is sent to a replica after so many failures in a row."""
    return min(FIRST_DISTRUST_SECONDS * 2.0 ** min(failures - 1, 10), LONGEST_DISTRUST_SECONDS)


def asked_again_at(held: Held | None, lease_seconds: float) -> float:
    """When a table in use is asked for (again), by the clock of `until`; long ago when nothing is known of it."""
    return float("-inf") if held is None else held.until - lease_seconds * ASKED_AGAIN_SHARE


def with_commit_id(body: bytes, commit_id: str) -> bytes:
    """The JSON object of a commit that has no id, with one. The last of two equal keys counts, also after a null."""
    return body.rstrip()[:-1] + b',"commitId":"' + commit_id.encode() + b'"}'
