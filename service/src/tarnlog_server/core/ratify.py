"""The machine of one slot: from fixed bytes to a known outcome, without doing any I/O itself.

A shell (the committer, or a test) performs the step it is told and feeds back what happened. Only two facts end it:
the store created our object, or the slot holds an object. A timeout, a reset, a 409 or a 404 never means failure.
"""

from __future__ import annotations

import enum


class Step(enum.Enum):
    """What to do next."""

    PUT = "put"  # PUT the same bytes (after a back-off, unless it is the first)
    READ_SLOT = "read-slot"  # GET the slot and look at its putId
    WON = "won"  # our object is in the slot
    LOST = "lost"  # somebody else's object is in the slot
    RELOAD = "reload"  # the slot was taken and is gone again: what we know of the table is too old
    REFUSED = "refused"  # the store said no to the very first PUT: certainly nothing was written


class Fact(enum.Enum):
    """What the shell saw."""

    CREATED = "created"
    EXISTS = "exists"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    OURS = "ours"
    ANOTHERS = "anothers"
    MISSING = "missing"
    UNREADABLE = "unreadable"  # the GET failed for a passing reason


class Ratify:
    """One slot, one fixed body. `may_have_landed` is true once any PUT ended without a known outcome."""

    __slots__ = ("may_have_landed", "puts", "step")

    def __init__(self) -> None:
        self.step = Step.PUT
        self.puts = 0
        self.may_have_landed = False

    def saw(self, fact: Fact) -> Step:
        """Feed a fact, get the next step. A fact that cannot follow the current step is a ValueError."""
        if self.step is Step.PUT:
            self.puts += 1
            self.step = self._after_put(fact)
        elif self.step is Step.READ_SLOT:
            self.step = self._after_read(fact)
        else:
            raise ValueError(f"the slot is settled ({self.step.value}); {fact.value} cannot follow")
        return self.step

    def _after_put(self, fact: Fact) -> Step:
        if fact is Fact.CREATED:
            return Step.WON
        if fact is Fact.EXISTS:
            return Step.READ_SLOT
        if fact is Fact.UNKNOWN:
            self.may_have_landed = True
            return Step.PUT
        if fact is Fact.REFUSED:
            # An earlier PUT may still land: only a refusal of everything sent so far is a refusal.
            return Step.PUT if self.may_have_landed else Step.REFUSED
        raise ValueError(f"{fact.value} is not what a PUT can see")

    def _after_read(self, fact: Fact) -> Step:
        if fact is Fact.OURS:
            return Step.WON
        if fact is Fact.ANOTHERS:
            return Step.LOST
        if fact is Fact.MISSING:
            return Step.RELOAD
        if fact is Fact.UNREADABLE:
            return Step.READ_SLOT
        raise ValueError(f"{fact.value} is not what reading a slot can see")
