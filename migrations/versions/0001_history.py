"""Tables, versions, commits, txns and skips."""  # noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "tarnlog_tables",
        sa.Column("id", number, primary_key=True, autoincrement=True),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("table_id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("timestamp", sa.BigInteger, nullable=False),
        sa.Column("num_files", sa.BigInteger, nullable=False),
        sa.Column("total_bytes", sa.BigInteger, nullable=False),
        sa.Column("num_records", sa.BigInteger, nullable=True),
        sa.Column("dropped", sa.Boolean, nullable=False),
        sa.Column("first", sa.BigInteger, nullable=False),
        sa.Column("last", sa.BigInteger, nullable=False),
        sa.Column("content", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_tarnlog_tables_location", "tarnlog_tables", ["location"], unique=True)
    op.create_table(
        "tarnlog_versions",
        sa.Column("table", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("timestamp", sa.BigInteger, nullable=False),
        sa.Column("commits", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_tarnlog_versions_table_timestamp", "tarnlog_versions", ["table", "timestamp"])
    op.create_table(
        "tarnlog_commits",
        sa.Column("table", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("commit_id", sa.String(64), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tarnlog_txns",
        sa.Column("table", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(32), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("txn", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tarnlog_skips",
        sa.Column("table", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("skip", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop them: everything in them can be read from storage again."""
    for name in ("skips", "txns", "commits", "versions", "tables"):
        op.drop_table(f"tarnlog_{name}")
