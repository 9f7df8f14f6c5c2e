"""The write sessions of one table of the fake."""

from __future__ import annotations

import itertools
from uuid import UUID

from tarnlog._errors import Expired, InvalidRequest, NotFound
from tarnlog._results import SessionInfo
from tarnlog.protocol.paths import check_prefix
from tarnlog.protocol.tables import MAX_SESSION_SECONDS

_IDS = itertools.count(1)


class FakeSessions:
    """Sessions by id; `now` is epoch milliseconds."""

    def __init__(self) -> None:
        self._sessions: dict[str, SessionInfo] = {}

    def begin(self, prefix: str, ttl_seconds: int, now: int) -> SessionInfo:
        _check_ttl(ttl_seconds)
        if (fault := check_prefix(prefix)) is not None:
            raise InvalidRequest(f"/prefix: {fault}", slug="request-invalid", status=422)
        info = SessionInfo(id=str(UUID(int=next(_IDS))), prefix=prefix, expires_at=now + ttl_seconds * 1000)
        self._sessions[info.id] = info
        return info

    def extend(self, session_id: str, ttl_seconds: int, now: int) -> SessionInfo:
        _check_ttl(ttl_seconds)
        old = self._sessions.get(session_id)
        if old is None:
            raise NotFound(f"There is no write session {session_id}.", slug="session-not-found", status=404)
        if old.expires_at <= now:
            raise Expired(f"The session {session_id} has expired.", slug="session-expired", status=410)
        longer = max(old.expires_at, now + ttl_seconds * 1000)
        self._sessions[session_id] = SessionInfo(id=session_id, prefix=old.prefix, expires_at=longer)
        return self._sessions[session_id]

    def end(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def active(self, now: int) -> tuple[SessionInfo, ...]:
        return tuple(info for info in self._sessions.values() if info.expires_at > now)


def _check_ttl(seconds: int) -> None:
    if not 1 <= seconds <= MAX_SESSION_SECONDS:
        detail = f"/ttlSeconds: a session lasts from 1 to {MAX_SESSION_SECONDS} seconds, not {seconds}."
        raise InvalidRequest(detail, slug="request-invalid", status=422)
