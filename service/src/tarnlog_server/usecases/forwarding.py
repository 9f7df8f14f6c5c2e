"""Sending a commit on to the replica that holds the table's lease, so that it shares a version with others.

Whatever goes wrong on the way, the commit is written here instead. That is safe at any time because the id is the same:
the log takes it once. What may be written by both is only marked, so that nobody is told that it was not.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tarnlog.protocol.commits import Committed
from tarnlog_server.core.routing import (
    FORWARDED_BYTES,
    UNSETTLED_IDS,
    UNSETTLED_SECONDS,
    Verdict,
    blames_owner,
    judge,
    settles,
    with_commit_id,
)
from tarnlog_server.ports.peers import PeerAnswer, Peers, PeerSilent
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.ownership import Ownership


class _Peek(Struct, frozen=True, rename="camel"):
    """What must be known of a commit to send it on; the owner looks at the rest."""

    actions: msgspec.Raw
    commit_id: str | None = None


class _Problem(Struct, frozen=True, rename="camel"):
    type: str = ""
    as_of_version: int | None = None


class Forwarded(Struct, frozen=True):
    """What came of it: the owner's answer, or (None) that the commit is to be written here.

    `body` has a commit id in any case where something was sent. `unsure`: another replica may write it as well, since
    this send or an earlier one got no clear answer; a refusal that does not settle the commit is then unknown.
    """

    answer: PeerAnswer | None
    body: bytes
    commit_id: str | None = None
    owner: str | None = None
    unsure: bool = False


_PEEK = msgspec.json.Decoder(_Peek)
_PROBLEM = msgspec.json.Decoder(_Problem)
_COMMITTED = msgspec.json.Decoder(Committed)


class Forwarding:
    """Decides for each commit whether another replica shall write it, and has it do so."""

    def __init__(self, ownership: Ownership, peers: Peers, world: World, telemetry: Telemetry) -> None:
        self.ownership = ownership
        self._peers = peers
        self._world = world
        self._telemetry = telemetry
        self._unsettled: dict[str, float] = {}
        """Commit ids that another replica may still write, each with the end of its time, oldest first."""

    def is_me(self, replica: str) -> bool:
        """Whether a commit that was sent to this replica by name is meant for this start of it."""
        return replica == self.ownership.me.id

    def written(self, table: str) -> None:
        """A commit to a table was written here."""
        self.ownership.used(table)

    async def attempt(self, table: str, body: bytes, headers: dict[str, str]) -> Forwarded:
        """Send a commit to the owner of its table, if that is another replica. Never raises for what goes wrong."""
        owner = self.ownership.owner(table)
        away = owner is not None and len(body) <= FORWARDED_BYTES
        if not away and not self._unsettled:
            return Forwarded(None, body)
        try:
            commit_id = _PEEK.decode(body).commit_id
        except (msgspec.DecodeError, ValueError, RecursionError):
            return Forwarded(None, body)  # what is wrong with it is said here
        unsettled = commit_id is not None and self._is_unsettled(commit_id)
        if owner is None or not away:
            return Forwarded(None, body, commit_id, unsure=unsettled)
        if commit_id is None:
            commit_id = str(self._world.uuid7())
            body = with_commit_id(body, commit_id)
        try:
            answer = await self._peers.commit(owner, table, body, headers)
        except PeerSilent as silence:
            self.ownership.distrust(owner)
            self._telemetry.commit_forwarded("unsure" if silence.sent else "unreachable")
            if silence.sent:
                self._unsettle(commit_id)
            return Forwarded(None, body, commit_id, owner.url, unsure=silence.sent or unsettled)
        verdict, slug, final = _judged(answer, commit_id)
        self._telemetry.commit_forwarded(verdict.value)
        if verdict is Verdict.RELAY:
            self.ownership.trust(owner)
            if answer.status < 300:
                self.ownership.used(table)
            if final:
                self.settled(commit_id)
            elif unsettled:
                return Forwarded(None, body, commit_id, owner.url, unsure=True)
            return Forwarded(answer, body, commit_id, owner.url)
        if blames_owner(slug):
            self.ownership.distrust(owner)
        else:
            self.ownership.trust(owner)
        if verdict is Verdict.UNSURE:
            self._unsettle(commit_id)
        return Forwarded(None, body, commit_id, owner.url, unsure=verdict is Verdict.UNSURE or unsettled)

    def settled(self, commit_id: str) -> None:
        """What became of a commit is known: it is in the log, or never will be."""
        self._unsettled.pop(commit_id.lower(), None)

    def _unsettle(self, commit_id: str) -> None:
        self._unsettled.pop(commit_id.lower(), None)
        self._unsettled[commit_id.lower()] = self._world.monotonic() + UNSETTLED_SECONDS
        if len(self._unsettled) > UNSETTLED_IDS:
            del self._unsettled[next(iter(self._unsettled))]

    def _is_unsettled(self, commit_id: str) -> bool:
        now = self._world.monotonic()
        while self._unsettled and next(iter(self._unsettled.values())) <= now:
            del self._unsettled[next(iter(self._unsettled))]
        return commit_id.lower() in self._unsettled


def _judged(answer: PeerAnswer, commit_id: str) -> tuple[Verdict, str, bool]:
    """What an answer is worth, the code of its problem, and whether it settles the commit on every replica.

    An answer that does not name the commit is not the owner's: something else listens on its port.
    """
    slug, committed, on_head = "", False, False
    try:
        if answer.status in (200, 201):
            committed = _COMMITTED.decode(answer.body).commit_id == commit_id.lower()
        else:
            problem = _PROBLEM.decode(answer.body)
            slug, on_head = problem.type.rsplit("/", 1)[-1], problem.as_of_version is not None
    except (msgspec.DecodeError, ValueError, RecursionError):
        slug = ""
    return judge(slug, committed=committed), slug, committed or settles(slug, on_head=on_head)
