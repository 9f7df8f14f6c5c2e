"""The memory that request bodies may take together, over all requests of the process.

A request takes its share as its bytes arrive, as they are inflated and before they are decoded, and gives everything
back when its endpoint has answered. Nothing waits: a request that finds no room is refused with 429 and Retry-After
while others hold it, and with 413 when it could never fit. So no two requests can block one another.
"""

from __future__ import annotations

from starlette.types import Scope

from tarnlog.protocol.problems import ProblemError

MIB = 1024 * 1024
DEFAULT_BYTES = 1024 * MIB
HELD = "tarnlog.body-bytes"
"""Where a request's scope keeps its share."""
RETRY_SECONDS = 1.0


class BodyBudget:
    """Bytes that are held by requests now, and how many may be."""

    def __init__(self, total: int = DEFAULT_BYTES) -> None:
        self.total = total
        self.held = 0

    def share(self, scope: Scope, slug: str) -> BodyShare:
        """What one request holds; the same object for every call with its scope."""
        share: BodyShare | None = scope.get(HELD)
        if share is None:
            share = scope[HELD] = BodyShare(self, slug)
        return share


class BodyShare:
    """What one request holds of a budget; `slug` names the refusal of one that is too large for all of it."""

    def __init__(self, budget: BodyBudget, slug: str) -> None:
        self._budget = budget
        self._slug = slug
        self._held = 0

    def take(self, size: int) -> None:
        """Hold `size` more bytes. ProblemError: 413 if they never fit, else 429 while others hold too much."""
        budget = self._budget
        if self._held + size > budget.total:
            raise ProblemError(
                self._slug,
                f"the body takes more than the {budget.total} bytes of memory that all bodies may take together "
                "(TARNLOG_MAX_BODY_MEMORY_BYTES): split the request into several",
            )
        if budget.held + size > budget.total:
            detail = "other requests take the memory that there is for bodies; nothing was done. Send it again later"
            raise ProblemError("too-many-waiting", detail, retry_after=RETRY_SECONDS)
        self._held += size
        budget.held += size

    def give_back(self) -> None:
        """Hold nothing any more."""
        self._budget.held -= self._held
        self._held = 0


def released(scope: Scope) -> None:
    """Give back what the request of a scope holds, if it holds anything."""
    share: BodyShare | None = scope.get(HELD)
    if share is not None:
        share.give_back()
