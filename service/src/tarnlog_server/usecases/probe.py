"""Ask a store, by trying, whether it keeps the promises that commits rest on.

Some servers accept a conditional create and ignore the condition. On such a store two writers both win one version and
one commit is lost without a trace, so the service refuses to write to a store that fails here. The probe works under
`_probe/<random>/` and removes what it wrote. It may run beside other probes and at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from tarnlog_server.codec.paths import PROBE
from tarnlog_server.ports.object_store import (
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
    PutResult,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from tarnlog_server.ports.world import World

_RACERS = 16
_ATTEMPTS = 5


class ProbeReport(msgspec.Struct, frozen=True):
    """What the probe found. `clock_offset_ms` is the store's clock minus ours, as far as one object's time can tell."""

    ok: bool
    problems: tuple[str, ...]
    clock_offset_ms: int


async def probe(store: ObjectStore, world: World) -> ProbeReport:
    """Check `store`. Never raises for what the store does: that is a problem in the report."""
    folder = f"{PROBE}/{world.rng.getrandbits(64):016x}/"
    problems: list[str] = []
    offset = 0
    try:
        offset = await _check_objects(store, world, folder, problems)
        await _check_race(store, folder, problems)
        await _check_list(store, folder, problems)
        await _check_delete(store, folder, problems)
    except StoreRefused as error:
        problems.append(f"The store refuses what the service needs: {error}")
    except StoreError as error:
        problems.append(f"The store did not answer the probe, so nothing is known of it; try again later: {error}")
    finally:
        await _clean_up(store, folder)
    return ProbeReport(ok=not problems, problems=tuple(problems), clock_offset_ms=offset)


async def _check_objects(store: ObjectStore, world: World, folder: str, problems: list[str]) -> int:
    """One object: created once, read whole and in part, described. Answers the clock's offset."""
    key = f"{folder}a-object"
    before = world.now_ms()
    if await _settled(store, world, key, b"first") is not PutResult.CREATED:
        problems.append("Creating an object of a new name answered that it exists: no commit could ever be made.")
    after = world.now_ms()
    again = await _settled(store, world, key, b"second")
    data = await store.get(key)
    if again is not PutResult.EXISTS or data != b"first":
        problems.append(
            "A second conditional create of the same name was not refused, or changed the object: two writers would "
            "both win one version and a commit would be lost. The store must honour If-None-Match: *."
        )
    if await store.get(key, 1, 3) != data[1:4] or await store.get(key, 2) != data[2:]:
        problems.append("A read of a byte range gave other bytes: files with footers cannot be read from this store.")
    info = await store.head(key)
    if info.size != len(data):
        problems.append(f"The size of an object is told as {info.size} instead of {len(data)} bytes.")
    return _offset(info.modified_ms, before, after)


async def _check_race(store: ObjectStore, folder: str, problems: list[str]) -> None:
    """Many creates at once: one winner, and the winner's bytes."""
    key = f"{folder}b-race"
    bodies = [f"racer {number}".encode() for number in range(_RACERS)]
    outcomes = await asyncio.gather(*(store.put_if_absent(key, body) for body in bodies), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, OutcomeUnknown):
            raise outcome
    winners = [body for body, outcome in zip(bodies, outcomes, strict=True) if outcome is PutResult.CREATED]
    unknown = [body for body, outcome in zip(bodies, outcomes, strict=True) if isinstance(outcome, OutcomeUnknown)]
    if len(winners) > 1 or not (winners or unknown):
        problems.append(
            f"Of {_RACERS} conditional creates at once {len(winners)} won instead of one: commits would be lost."
        )
        return
    try:
        data = await store.get(key)
    except ObjectMissing:
        if winners:
            problems.append("An object was missing right after its create was confirmed: commits would vanish.")
        return
    if data not in (winners or unknown):
        problems.append(
            "After a race of conditional creates the object holds the bytes of a loser: a commit that was confirmed "
            "would be overwritten."
        )


async def _check_list(store: ObjectStore, folder: str, problems: list[str]) -> None:
    """What was written is listed at once, in order, from where we say."""
    # `c` is a folder to some stores and must still sort behind `c-x` and `c.x`.
    wanted = [f"{folder}{name}" for name in ("c-x", "c.x", "c/x", "c0")]
    for key in reversed(wanted):
        await _repeated(lambda key=key: store.put(key, b"listed"))  # type: ignore[misc]
    listed = [info.key for info in await store.list(f"{folder}c")]
    if sorted(listed) != wanted:
        problems.append(
            "A listing right after the writes does not show exactly what was written: new commits would be missed."
        )
    elif listed != wanted:
        problems.append(
            "Objects are not listed in the order of their names: paging would miss objects. "
            "For S3 set the listing of this store to `walk`."
        )
    elif [info.key for info in await store.list(f"{folder}c", wanted[1], 1)] != wanted[2:3]:
        problems.append("A listing from a given name does not begin right after it: new commits would be missed.")


async def _check_delete(store: ObjectStore, folder: str, problems: list[str]) -> None:
    key = f"{folder}a-object"
    await store.delete(key)
    await store.delete(key)
    with contextlib.suppress(ObjectMissing):
        await store.head(key)
        problems.append("A deleted object is still there: clean-up would not free anything.")


async def _settled(store: ObjectStore, world: World, key: str, data: bytes) -> PutResult:
    """A conditional create whose outcome is known, whatever happened to the replies on the way."""
    for attempt in range(_ATTEMPTS):
        try:
            result = await store.put_if_absent(key, data)
        except OutcomeUnknown:
            await world.sleep(0.1 * 2**attempt)
            continue
        if attempt and result is PutResult.EXISTS and await store.get(key) == data:
            return PutResult.CREATED  # by an earlier attempt of ours
        return result
    raise StoreUnavailable(f"{_ATTEMPTS} tries to create {key!r} had no known outcome", key=key)


async def _repeated(write: Callable[[], Awaitable[None]]) -> None:
    """An unconditional put may simply be said again."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(OutcomeUnknown):
            return await write()
    return await write()


async def _clean_up(store: ObjectStore, folder: str) -> None:
    with contextlib.suppress(StoreError):
        left: list[ObjectInfo] = await store.list(folder)
        for info in left:
            await store.delete(info.key)


def _offset(modified_ms: int, before: int, after: int) -> int:
    """Zero if the object's time lies within the writing of it. Stores cut times to the second, which is allowed for."""
    if modified_ms > after:
        return modified_ms - after
    return min(0, modified_ms + 999 - before) if modified_ms < before else 0
