"""Keys have limits, an account that stays when they are rotated, and the end that they had before; rows say who owns them.

Revision ID: 0028
Revises: 0027
Created: 2026-11-26
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_OWNED = ("models", "sample_files", "jobs", "sweeps", "devices")
_COUNTED = ("models", "sample_files", "jobs")
"""Tables whose rows count for their owner's limits."""


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("account", sa.Text(), nullable=True))
    op.add_column("api_keys", sa.Column("limits", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))
    op.add_column("api_keys", sa.Column("rotated_at", sa.Double(), nullable=True))
    op.add_column("api_keys", sa.Column("unrotated_end", sa.Double(), nullable=True))
    for table in _OWNED:
        op.add_column(table, sa.Column("owner", sa.Text(), nullable=True))
    for table in _COUNTED:
        op.create_index(f"ix_{table}_owner", table, ["owner"])
    op.create_table(
        "reserved_bytes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_reserved_bytes"),
    )
    op.create_index("ix_reserved_bytes_owner", "reserved_bytes", ["owner"])


def downgrade() -> None:
    op.drop_table("reserved_bytes")
    for table in _COUNTED:
        op.drop_index(f"ix_{table}_owner", table)
    for table in _OWNED:
        op.drop_column(table, "owner")
    for column in ("unrotated_end", "rotated_at", "limits", "account"):
        op.drop_column("api_keys", column)
