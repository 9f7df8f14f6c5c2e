"""Decoded manifests from the index, for plans that read some manifests of a table which is not open.

A segment is known by the SHA-256 of its manifest, which a state tells, so it is never stale; its own digest is checked.
Only plans read here: whoever opens, audits or writes a state needs to know that the manifests are there and whole, and
reads them from storage. What was decoded there is kept for the plans of other replicas, and of this one's next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque

import msgspec
import pyarrow as pa
from msgspec import Struct

from tarnlog_server.codec.segment_ipc import decode_segment, encode_segment, segment_digest
from tarnlog_server.codec.state_manifest import ManifestInfo
from tarnlog_server.ports.columns import ColumnReader
from tarnlog_server.ports.index import IndexUnavailable
from tarnlog_server.ports.segments import Segment, Segments
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.ports.world import World
from tarnlog_server.usecases.index_guard import IndexGuard
from tarnlog_server.usecases.load_times import LoadTimes

_log = logging.getLogger(__name__)
LEAST_ROWS = 1000
"""Smaller manifests are decoded about as quickly as they are looked up."""
WAITING_BYTES = 64 * 1024 * 1024
"""Avro that waits to be put; what comes beyond is not kept this time."""
KNOWN = 10_000
REST_FACTOR = 4.0
LONGEST_REST = 2.0
READ_SECONDS = 2.0


class _Offer(Struct, frozen=True):
    key: str
    info: ManifestInfo
    avro: bytes


class SegmentCache:
    """Reads segments for plans, and puts what was decoded elsewhere, one at a time and in the background."""

    def __init__(
        self,
        segments: Segments,
        guard: IndexGuard,
        reader: ColumnReader,
        world: World,
        telemetry: Telemetry | None = None,
        *,
        most_bytes: int = 1024**3,
        loads: LoadTimes | None = None,
    ) -> None:
        self._segments = segments
        self._guard = guard
        self._reader = reader
        self._world = world
        self._telemetry = telemetry or Telemetry()
        self._loads = loads or LoadTimes()
        self._most_bytes = most_bytes
        self._offers: deque[_Offer] = deque()
        self._waiting = 0
        self._wake = asyncio.Event()
        self._known: OrderedDict[str, None] = OrderedDict()
        """SHA-256 of those that were seen there: they are not offered again."""
        self._useless: set[str] = set()
        """SHA-256 of those that were asked for and not there as a whole: they are put again, whatever is there."""

    async def find(self, info: ManifestInfo) -> list[pa.RecordBatch] | None:
        """The entries of a manifest, if the index has them whole. Costs a query, and no read of storage."""
        sha256 = info.sha256
        if sha256 is None or info.num_entries < LEAST_ROWS:
            return None
        started = self._world.monotonic()
        segment = await self._guard.read("segment", lambda _: self._segments.get(sha256), READ_SECONDS)
        found = None if segment is None else await self._world.run_blocking(lambda: _believed(info, segment))
        self._telemetry.index_lookup("segment", found is not None)
        self._see(sha256, found is not None)
        if found is not None:
            self._loads.note("index", self._world.monotonic() - started)
        if found is None and len(self._useless) < KNOWN:
            self._useless.add(sha256)
        return found

    def offer(self, key: str, info: ManifestInfo, avro: bytes) -> None:
        """A manifest that was read and decoded: it is decoded once more when nobody waits. Costs nothing now."""
        if info.sha256 is None or info.num_entries < LEAST_ROWS or info.sha256 in self._known:
            return
        if self._waiting + len(avro) > WAITING_BYTES:
            return
        self._see(info.sha256, True)
        self._waiting += len(avro)
        self._offers.append(_Offer(key, info, avro))
        self._wake.set()

    async def run(self) -> None:
        """Put what is offered, for ever."""
        while True:
            await self._wake.wait()
            await self.flush()

    async def flush(self) -> None:
        """Put all that is offered now. What the index does not take is forgotten: it is offered again some day."""
        self._wake.clear()
        while self._offers:
            offer = self._offers.popleft()
            self._waiting -= len(offer.avro)
            started = self._world.monotonic()
            try:
                await self._put(offer)
            except (IndexUnavailable, ValueError) as error:
                _log.debug("manifest %s is not kept in the index: %s", offer.key, error)
                self._known.pop(str(offer.info.sha256), None)
            await self._world.sleep(min(LONGEST_REST, REST_FACTOR * (self._world.monotonic() - started)))

    async def _put(self, offer: _Offer) -> None:
        sha256, info = str(offer.info.sha256), offer.info
        if self._guard.state != "ready":
            raise IndexUnavailable("the index is not ready")
        if sha256 not in self._useless:
            there = await self._guard.write("segment", lambda _: self._segments.bounds([sha256]))
            if there:
                return
        data = await self._world.run_blocking(lambda: encode_segment(self._reader.read_avro(offer.avro)))
        bounds = msgspec.json.encode({"partitions": info.partition_bounds, "columns": info.column_bounds}).decode()
        digest = segment_digest(sha256, info.num_entries, data)
        segment = Segment(sha256, offer.key, info.num_entries, bounds, data, digest)
        now = self._world.now_ms()
        await self._guard.write("segment", lambda _: self._segments.put(segment, now))
        self._useless.discard(sha256)
        await self._guard.write("segment", lambda _: self._segments.shrink(self._most_bytes))

    async def forget(self) -> None:
        """Drop every segment, of all tables: after an erase none may show what was removed. It fills up by itself."""
        with contextlib.suppress(IndexUnavailable):
            await self._guard.write("segment", lambda _: self._segments.shrink(0))
            self._known.clear()

    def _see(self, sha256: str, there: bool) -> None:
        self._known.pop(sha256, None)
        if there:
            self._known[sha256] = None
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)


def _believed(info: ManifestInfo, segment: Segment) -> list[pa.RecordBatch] | None:
    """The entries, unless something about them is not as it was put."""
    if segment.sha256 != info.sha256 or segment.rows != info.num_entries:
        return None
    if segment_digest(segment.sha256, segment.rows, segment.data) != segment.digest:
        return None
    try:
        batches = decode_segment(segment.data)
    except ValueError:
        return None
    return batches if sum(batch.num_rows for batch in batches) == info.num_entries else None
