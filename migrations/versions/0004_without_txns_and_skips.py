"""No txns and skips: nothing reads them, states and the log have them."""  # noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Drop them."""
    op.drop_table("tarnlog_skips")
    op.drop_table("tarnlog_txns")


def downgrade() -> None:
    """Make them again, empty: the release before writes what it finds from then on, and reads none of it."""
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
