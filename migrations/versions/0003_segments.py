"""Decoded manifests."""  # noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make their tables."""
    op.create_table(
        "tarnlog_segments",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("manifest", sa.Text, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("bounds", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("stored_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tarnlog_segment_parts",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("part", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        # It is compressed already.
        op.execute("ALTER TABLE tarnlog_segment_parts ALTER COLUMN data SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Drop them."""
    op.drop_table("tarnlog_segment_parts")
    op.drop_table("tarnlog_segments")
