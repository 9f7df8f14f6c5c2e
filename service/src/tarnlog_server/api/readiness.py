"""Whether this replica may serve writes, and why not."""

from __future__ import annotations

import asyncio

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.usecases.steady_clock import MAX_CLOCK_OFFSET_MS, SteadyClock


class Readiness:
    """Reasons against serving writes, by the place they are about. None means ready. Reads are served regardless."""

    def __init__(self, clock: SteadyClock | None = None) -> None:
        self._clock = clock
        self._reasons: dict[str, str] = {"start": "the stores have not been checked yet"}
        self._refusals: dict[str, str] = {}
        self.closed = asyncio.Event()
        """Set once the service shuts down: streams end, and new requests are sent elsewhere."""

    @property
    def closing(self) -> bool:
        return self.closed.is_set()

    def checked(self, place: str, problems: tuple[str, ...], clock_offset_ms: int) -> None:
        """What a check of a store found; it replaces what was known of the place."""
        self._reasons.pop("start", None)
        reasons = list(problems)
        if abs(clock_offset_ms) > MAX_CLOCK_OFFSET_MS:
            reasons.append(
                f"this machine's clock is {abs(clock_offset_ms) / 1000:.0f} s "
                f"{'behind' if clock_offset_ms > 0 else 'ahead of'} the store's: set it"
            )
        if reasons:
            self._reasons[place] = " ".join(reasons)
        else:
            self._reasons.pop(place, None)

    def refused(self, place: str, reason: str | None) -> None:
        """Record that a store refuses writes, or (None) that it takes them again: a full disk, missing rights.

        The replica is then not ready, but goes on to try the writes that arrive: each is answered by what the store
        says to it, so the first one after space was made is written.
        """
        if reason is None:
            self._refusals.pop(place, None)
        else:
            self._refusals[place] = f"the store refuses writes: {reason}"

    @property
    def reasons(self) -> list[str]:
        """Every reason, with the place it is about."""
        found = [reason if place == "start" else f"{place}: {reason}" for place, reason in self._reasons.items()]
        found += [f"{place}: {reason}" for place, reason in self._refusals.items() if place not in self._reasons]
        step = self._stepped_ms()
        if step:
            ahead = "ahead" if step > 0 else "back"
            found.append(
                f"this machine's clock was set {ahead} by {abs(step) / 1000:.0f} s: it is compared to the store's"
            )
        return found

    def _stepped_ms(self) -> int:
        """A step of the machine's clock that no check has seen yet: two clock reads."""
        return 0 if self._clock is None else self._clock.stepped_ms()

    def require_all(self) -> None:
        """ProblemError unless this replica is ready: the same as for a write, and the store takes writes."""
        self.require()
        if self._refusals:
            detail = "writes that are sent here are refused. " + "; ".join(self.reasons)
            raise ProblemError("not-ready", detail, retry_after=5.0)

    def require(self) -> None:
        """ProblemError `not-ready` or `shutting-down` unless writes may be served."""
        if self.closing:
            raise ProblemError("shutting-down", "the service is shutting down; send it again", retry_after=1.0)
        if self._reasons or self._stepped_ms():
            detail = "this replica serves no writes; nothing was written. " + "; ".join(self.reasons)
            raise ProblemError("not-ready", detail, retry_after=5.0 if self._reasons else 1.0)
