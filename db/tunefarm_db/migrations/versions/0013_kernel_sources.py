"""Add sources of kernels.

Revision ID: 0013
Revises: 0012
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "kernel_sources",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("record_id", sa.Text(), nullable=False),
        sa.Column("target", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_kernel_sources"),
        sa.ForeignKeyConstraint(["record_id"], ["records.id"], name="fk_kernel_sources_record_id_records"),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name="fk_kernel_sources_sha256_blobs"),
    )


def downgrade() -> None:
    op.execute(sa.text("DELETE FROM steps WHERE kind = 'source'"))  # an older tunefarm does not know them
    op.drop_table("kernel_sources")
