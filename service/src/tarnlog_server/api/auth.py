"""Who calls, and what a key allows.

Scopes contain one another: read < write < admin. Reading needs read; committing, creating and altering need write;
what takes a table away from its name, or takes one up, needs admin. A key may be limited to namespaces by a pattern.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.ports.world import World

Scope = Literal["read", "write", "admin"]
RANK: dict[Scope, int] = {"read": 0, "write": 1, "admin": 2}
_NOBODY = "0" * 64
MAX_ADDRESSES = 10_000
FIRST_DELAY = 0.1
LONGEST_DELAY = 5.0
FORGET_AFTER = 300.0


class ApiKey(Struct, frozen=True, kw_only=True):
    """A configured key. `namespaces` is a pattern such as `sales*`; None means all of them."""

    id: str
    sha256: str
    scope: Scope
    namespaces: str | None = None


class Caller(Struct, frozen=True, kw_only=True):
    """Who a request is from."""

    id: str
    scope: Scope
    namespaces: str | None = None
    name: str | None = None
    """What the log keeps of whoever commits: the id of a key; None where nobody was asked for one."""

    def sees(self, namespace: str) -> bool:
        """Whether the key reaches a namespace."""
        return self.namespaces is None or fnmatchcase(namespace, self.namespaces)

    def require(self, scope: Scope, namespace: str | None = None) -> None:
        """ProblemError `forbidden` unless the key has the scope, and reaches the namespace."""
        if RANK[self.scope] < RANK[scope]:
            raise ProblemError("forbidden", f"key {self.id!r} has scope {self.scope}; this needs {scope}")
        if namespace is not None and not self.sees(namespace):
            detail = f"key {self.id!r} is for namespaces like {self.namespaces!r}: use a key for the table's namespace"
            raise ProblemError("forbidden", detail)


LOCAL = Caller(id="local", scope="admin")
"""Without configured keys only loopback is served, and everyone on this machine may do everything."""

ANONYMOUS = Caller(id="anonymous", scope="read")
"""A health check without a valid key, where keys are configured."""


class Authenticator:
    """Checks keys. A wrong one costs its sender a delay that grows with every further one from the same address."""

    def __init__(self, keys: tuple[ApiKey, ...], world: World) -> None:
        self._keys = {key.id: key for key in keys}
        self._world = world
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    @property
    def open(self) -> bool:
        """Whether no keys are configured at all."""
        return not self._keys

    async def caller(self, authorization: bytes | None, address: str, *, basic: bool = False) -> Caller:
        """Who sends this header. ProblemError `unauthenticated`, late if the key is wrong.

        `basic` also takes what a browser asks its user for: the key's id as the user, its secret as the password.
        """
        if not self._keys:
            return LOCAL
        if authorization is None:
            raise ProblemError("unauthenticated", "send an API key: Authorization: Bearer <id>.<secret>")
        found = self._matching(authorization, basic)
        if found is None and not basic and authorization[:6].lower() == b"basic ":
            await self._world.sleep(self._delay(address))
            detail = "Basic is for the pages of the dashboard; here use Authorization: Bearer <id>.<secret>"
            raise ProblemError("unauthenticated", detail)
        if found is None:
            await self._world.sleep(self._delay(address))
            raise ProblemError("unauthenticated", "the API key is not valid: check it, or ask for a new one")
        return found

    def _matching(self, authorization: bytes, basic: bool) -> Caller | None:
        kind, _, credentials = authorization.partition(b" ")
        known = kind.lower() == b"bearer"
        name, _, secret = credentials.strip().partition(b".")
        if basic and kind.lower() == b"basic":
            known = True
            name, _, secret = _decoded(credentials).partition(b":")
        key = self._keys.get(name.decode("latin-1"))
        # Compared for unknown ids too: the time taken says nothing about which ids exist.
        expected = _NOBODY if key is None else key.sha256.lower()
        same = hmac.compare_digest(hashlib.sha256(secret).hexdigest(), expected)
        if key is None or not same or not known:
            return None
        return Caller(id=key.id, scope=key.scope, namespaces=key.namespaces, name=key.id)

    def _delay(self, address: str) -> float:
        now = self._world.monotonic()
        count, last = self._wrong.pop(address, (0, now))
        count = 1 if now - last > FORGET_AFTER else count + 1
        self._wrong[address] = (count, now)
        if len(self._wrong) > MAX_ADDRESSES:
            self._wrong.popitem(last=False)
        return min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(count - 1, 10))


def _decoded(credentials: bytes) -> bytes:
    try:
        return base64.b64decode(credentials.strip(), validate=True)
    except binascii.Error:
        return b""
