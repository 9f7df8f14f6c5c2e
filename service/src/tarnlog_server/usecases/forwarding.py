"""Sending a commit on to the replica that holds the table's lease, so that it shares a version with others.

Whatever goes wrong on the way, the commit is written here instead. That is safe at any time because the id is the same:
the log takes it once. What may be written by both is only marked, so that nobody is told that it was not.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tarnlog.protocol.commits import Committed
from tarnlog_server.core.routing import FORWARDED_BYTES, Verdict, blames_owner, judge, with_commit_id
from tarnlog_server.ports.peers import PeerAnswer, Peers, PeerSilent
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.ownership import Ownership


class _Peek(Struct, frozen=True, rename="camel"):
    """What must be known of a commit to send it on; the owner looks at the rest."""

    actions: msgspec.Raw
    commit_id: str | None = None


class _Problem(Struct, frozen=True):
    type: str = ""


class Forwarded(Struct, frozen=True):
    """What came of it: the owner's answer, or (None) that the commit is to be written here.

    `body` has a commit id in any case where something was sent. `unsure`: the owner may write it as well.
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

    def is_me(self, replica: str) -> bool:
        """Whether a commit that was sent to this replica by name is meant for this start of it."""
        return replica == self.ownership.me.id

    def written(self, table: str) -> None:
        """A commit to a table was written here."""
        self.ownership.used(table)

    async def attempt(self, table: str, body: bytes, headers: dict[str, str]) -> Forwarded:
        """Send a commit to the owner of its table, if that is another replica. Never raises for what goes wrong."""
        owner = self.ownership.owner(table)
        if owner is None or len(body) > FORWARDED_BYTES:
            return Forwarded(None, body)
        try:
            commit_id = _PEEK.decode(body).commit_id
        except (msgspec.DecodeError, ValueError, RecursionError):
            return Forwarded(None, body)  # what is wrong with it is said here
        if commit_id is None:
            commit_id = str(self._world.uuid7())
            body = with_commit_id(body, commit_id)
        try:
            answer = await self._peers.commit(owner, table, body, headers)
        except PeerSilent as silence:
            self.ownership.distrust(owner)
            self._telemetry.commit_forwarded("unsure" if silence.sent else "unreachable")
            return Forwarded(None, body, commit_id, owner.url, unsure=silence.sent)
        verdict, slug = _judged(answer, commit_id)
        self._telemetry.commit_forwarded(verdict.value)
        if verdict is Verdict.RELAY:
            self.ownership.trust(owner)
            if answer.status < 300:
                self.ownership.used(table)
            return Forwarded(answer, body, commit_id, owner.url)
        if blames_owner(slug):
            self.ownership.distrust(owner)
        else:
            self.ownership.trust(owner)
        return Forwarded(None, body, commit_id, owner.url, unsure=verdict is Verdict.UNSURE)


def _judged(answer: PeerAnswer, commit_id: str) -> tuple[Verdict, str]:
    """What an answer is worth, and the code of its problem: a stranger on the owner's port is not believed."""
    slug, committed = "", False
    try:
        if answer.status in (200, 201):
            committed = _COMMITTED.decode(answer.body).commit_id == commit_id.lower()
        else:
            slug = _PROBLEM.decode(answer.body).type.rsplit("/", 1)[-1]
    except (msgspec.DecodeError, ValueError, RecursionError):
        slug = ""
    return judge(slug, committed=committed), slug
