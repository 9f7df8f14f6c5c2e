"""The tables of the index in a database. `migrations/` makes them; a test keeps both the same."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, String, Table, Text

REVISION = "0004"
"""The newest revision in `migrations/`: what this release works with. Known here, so that an index that is up to date
opens without loading Alembic."""
REVISION_TABLE = "tarnlog_revision"

metadata = MetaData(
    naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "pk": "pk_%(table_name)s"},
)

# SQLite numbers rows by itself only in a column of plain INTEGER.
_Id = BigInteger().with_variant(Integer(), "sqlite")

tables = Table(
    "tarnlog_tables",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=True),
    Column("location", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("table_id", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("timestamp", BigInteger, nullable=False),
    Column("num_files", BigInteger, nullable=False),
    Column("total_bytes", BigInteger, nullable=False),
    Column("num_records", BigInteger, nullable=True),
    Column("dropped", Boolean, nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("content", BigInteger, nullable=False),
    Index("ix_tarnlog_tables_location", "location", unique=True),
)

versions = Table(
    "tarnlog_versions",
    metadata,
    Column("table", BigInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("timestamp", BigInteger, nullable=False),
    Column("commits", Text, nullable=False),
    Column("checksum", BigInteger, nullable=False),
    Index("ix_tarnlog_versions_table_timestamp", "table", "timestamp"),
)

commits = Table(
    "tarnlog_commits",
    metadata,
    Column("table", BigInteger, primary_key=True, autoincrement=False),
    Column("commit_id", String(64), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
)

leases = Table(
    "tarnlog_leases",
    metadata,
    Column("warehouse", Text, primary_key=True),
    Column("table", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("until", Double, nullable=False),
)
"""Which replica writes which table, until when by the clock of the database, in epoch seconds."""

segments = Table(
    "tarnlog_segments",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("manifest", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bounds", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("stored_at", BigInteger, nullable=False),
)

segment_parts = Table(
    "tarnlog_segment_parts",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("part", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

OF_A_TABLE = (versions, commits)
"""What has rows of a table."""
