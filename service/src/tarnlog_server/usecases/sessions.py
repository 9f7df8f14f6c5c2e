"""Write sessions: a writer says where it works and for how long, and vacuum leaves that alone.

A session is an object beside the log, so every replica sees it, also after a restart. It promises nothing else: it
locks nobody out, and a commit needs none. Objects of sessions that nobody ended are swept when a new one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.paths import check_prefix
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import MAX_SESSION_SECONDS
from tarnlog_server.codec.session_file import SessionFile, decode_session, encode_session
from tarnlog_server.ports.object_store import ObjectInfo, ObjectMissing, OutcomeUnknown
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.commits import check_writable
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.open_tables import OpenTables

PUT_ATTEMPTS = 5
PARALLEL = 16
MAX_SESSIONS = 1000
SWEPT_AFTER_MS = (MAX_SESSION_SECONDS + 24 * 3600) * 1000
"""A session lasts at most so long after its object was written, so this old an object covers nothing any more."""


class SessionView(Struct, frozen=True, rename="camel"):
    """A write session."""

    id: str
    prefix: str
    expires_at: int


class SessionsView(Struct, frozen=True):
    """The write sessions of a table that have not expired."""

    sessions: tuple[SessionView, ...]


class Sessions:
    """The verbs about write sessions."""

    def __init__(self, tables: OpenTables) -> None:
        self._tables = tables

    async def begin(self, name: TableName, prefix: str, ttl_seconds: int) -> SessionView:
        """A new session. ProblemError `request-invalid` for a prefix that no data file can have."""
        _check(prefix)
        live = await self._live(name)
        with live.translated(close=False):
            await self._make_room(live)
            now = self._tables.world.now_ms()
            session = SessionFile(
                id=str(self._tables.world.uuid7()),
                prefix=prefix,
                expires_at=now + ttl_seconds * 1000,
                created_at=now,
            )
            await _put(live, session, self._tables.world)
        return _view(session)

    async def extend(self, name: TableName, session_id: str, ttl_seconds: int) -> SessionView:
        """Let a session last that long from now on; never shorter than it would have.

        ProblemError `session-not-found`, or `session-expired`: vacuum may have been there since.
        """
        live = await self._live(name)
        with live.translated(close=False):
            key = live.log.paths.session(_parsed(session_id))
            try:
                session = decode_session(key, await live.log.store.get(key))
            except ObjectMissing:
                raise _not_found(session_id) from None
            now = self._tables.world.now_ms()
            if session.expires_at <= now:
                raise ProblemError(
                    "session-expired",
                    f"session {session_id} expired at {session.expires_at}, and files it covered may have been deleted "
                    "since: begin a new session, and check the files that are not committed yet",
                    expiredAt=session.expires_at,
                )
            longer = SessionFile(
                id=session.id,
                prefix=session.prefix,
                expires_at=max(session.expires_at, now + ttl_seconds * 1000),
                created_at=session.created_at,
            )
            await _put(live, longer, self._tables.world)
        return _view(longer)

    async def end(self, name: TableName, session_id: str) -> None:
        """End a session. ProblemError `session-not-found` when there is none: it was ended before, or swept."""
        live = await self._live(name)
        with live.translated(close=False):
            key = live.log.paths.session(_parsed(session_id))
            try:
                await live.log.store.head(key)
            except ObjectMissing:
                raise _not_found(session_id) from None
            await live.log.store.delete(key)

    async def list(self, name: TableName) -> SessionsView:
        """The sessions that have not expired, oldest first. Costs a GET each."""
        live = (await self._tables.get(name)).live
        with live.translated(close=False):
            found = await read_sessions(live)
        now = self._tables.world.now_ms()
        return SessionsView(tuple(_view(session) for session in found if session.expires_at > now))

    async def _live(self, name: TableName) -> LiveTable:
        # Looked up anew: a session beside the log of a table that was dropped meanwhile would protect nothing.
        table = await self._tables.get(name, 0)
        check_writable(table)
        return table.live

    async def _make_room(self, live: LiveTable) -> None:
        """Sweep what expired long ago, by the store's own time: no object needs to be read for it.

        Only where there are very many, all are read, and those that have expired go too: writers that are killed again
        and again must not lock out others.
        """
        infos = await _stored(live)
        now = self._tables.world.now_ms()
        old = [info.key for info in infos if info.modified_ms < now - SWEPT_AFTER_MS]
        await _swept(live, old)
        if len(infos) - len(old) < MAX_SESSIONS:
            return
        sessions = await read_sessions(live)
        expired = [live.log.paths.session(session.id) for session in sessions if session.expires_at <= now]
        await _swept(live, expired)
        left = len(sessions) - len(expired)
        if left >= MAX_SESSIONS:
            raise ProblemError(
                "too-many-waiting",
                f"the table has {left} write sessions: end those that are done, or wait until some expire",
                retry_after=60.0,
            )


async def _swept(live: LiveTable, keys: Sequence[str]) -> None:
    for start in range(0, len(keys), PARALLEL):
        await asyncio.gather(*(live.log.store.delete(key) for key in keys[start : start + PARALLEL]))


async def read_sessions(live: LiveTable) -> list[SessionFile]:
    """Every session there is, expired or not, oldest first. Raises StoreError, CorruptObject."""
    keys = [info.key for info in await _stored(live)]
    found: list[SessionFile] = []
    for start in range(0, len(keys), PARALLEL):
        read = await asyncio.gather(*(_read(live, key) for key in keys[start : start + PARALLEL]))
        found += [session for session in read if session is not None]
    return found


async def _read(live: LiveTable, key: str) -> SessionFile | None:
    try:
        return decode_session(key, await live.log.store.get(key))
    except ObjectMissing:  # it was ended since it was listed
        return None


async def _stored(live: LiveTable) -> list[ObjectInfo]:
    paths, store = live.log.paths, live.log.store
    found: list[ObjectInfo] = []
    after: str | None = None
    while True:
        page = await store.list(paths.sessions_prefix, start_after=after, limit=1000)
        found += [info for info in page if paths.parse_session(info.key) is not None]
        if len(page) < 1000:
            return found
        after = page[-1].key


async def _put(live: LiveTable, session: SessionFile, world: World) -> None:
    """Write it until the store says that it is there: a writer relies on it from then on."""
    for attempt in range(PUT_ATTEMPTS):
        try:
            await live.log.store.put(live.log.paths.session(session.id), encode_session(session))
            return
        except OutcomeUnknown:
            if attempt == PUT_ATTEMPTS - 1:
                raise
            await world.sleep(0.1 * 2**attempt)


def _check(prefix: str) -> None:
    fault = check_prefix(prefix)
    if fault is not None:
        errors = [{"pointer": "/prefix", "message": fault}]
        raise ProblemError("request-invalid", f"/prefix: {fault}", errors=errors)


def _parsed(session_id: str) -> str:
    """Ids are UUIDs: nothing else becomes part of an object's name."""
    try:
        same = str(UUID(session_id)) == session_id
    except ValueError:
        same = False
    if not same:
        raise _not_found(session_id)
    return session_id


def _not_found(session_id: str) -> ProblemError:
    detail = f"there is no write session {session_id}: it was ended, or expired long ago; begin a new one"
    return ProblemError("session-not-found", detail)


def _view(session: SessionFile) -> SessionView:
    return SessionView(session.id, session.prefix, session.expires_at)
