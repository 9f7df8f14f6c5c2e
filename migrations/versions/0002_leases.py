"""Leases: which replica writes which table."""  # noqa: INP001

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "tarnlog_leases",
        sa.Column("warehouse", sa.Text, primary_key=True),
        sa.Column("table", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Forget who holds what; nothing but speed is lost."""
    op.drop_table("tarnlog_leases")
