"""Segments in Postgres or SQLite. Data is cut into parts: a row of many megabytes is dear in either."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from tarnlog_server.adapters.sql_bulk import insert_rows
from tarnlog_server.adapters.sql_engine import Database
from tarnlog_server.adapters.sql_schema import segment_parts, segments
from tarnlog_server.ports.segments import Segment

PART_BYTES = 1024 * 1024


class SqlSegments:
    """A Segments. The database is made ready and closed by the index, which shares it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, sha256: str) -> Segment | None:
        async def read(connection: AsyncConnection) -> Segment | None:
            row = (await connection.execute(select(segments).where(segments.c.sha256 == sha256))).first()
            if row is None:
                return None
            wanted = select(segment_parts.c.data).where(segment_parts.c.sha256 == sha256)
            parts = (await connection.execute(wanted.order_by(segment_parts.c.part))).scalars().all()
            data = b"".join(parts)
            if len(data) != row.size:
                return None
            return Segment(row.sha256, row.manifest, row.rows, row.bounds, data, row.digest)

        return await self._database.run(read)

    async def bounds(self, sha256s: Iterable[str]) -> dict[str, str]:
        wanted = select(segments.c.sha256, segments.c.bounds).where(segments.c.sha256.in_(list(sha256s)))

        async def read(connection: AsyncConnection) -> dict[str, str]:
            return {row[0]: row[1] for row in await connection.execute(wanted)}

        return await self._database.run(read)

    async def put(self, segment: Segment, now_ms: int) -> None:
        sha256, data = segment.sha256, segment.data
        row = (sha256, segment.manifest, segment.rows, segment.bounds, len(data), segment.digest, now_ms)
        parts = [
            (sha256, number, data[start : start + PART_BYTES])
            for number, start in enumerate(range(0, len(data), PART_BYTES))
        ]
        async with self._database.begin() as connection:
            await connection.execute(delete(segments).where(segments.c.sha256 == sha256))
            await connection.execute(delete(segment_parts).where(segment_parts.c.sha256 == sha256))
            # Another replica may put the same at the same time: whoever comes second adds nothing.
            await insert_rows(connection, segments, [row], "ON CONFLICT DO NOTHING")
            await insert_rows(connection, segment_parts, parts, "ON CONFLICT DO NOTHING")

    async def shrink(self, most_bytes: int) -> int:
        wanted = select(segments.c.sha256, segments.c.size).order_by(
            segments.c.stored_at.desc(), segments.c.sha256.desc()
        )
        async with self._database.begin() as connection:
            size = 0
            gone = []
            for sha256, one in (await connection.execute(wanted)).all():
                size += one
                if size > most_bytes:
                    gone.append(sha256)
            for sha256 in gone:
                await connection.execute(delete(segments).where(segments.c.sha256 == sha256))
                await connection.execute(delete(segment_parts).where(segment_parts.c.sha256 == sha256))
        return len(gone)
