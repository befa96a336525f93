"""Add samples: real inputs that users give for their models.

Revision ID: 0017
Revises: 0016
Created: 2026-11-23
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sample_files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("sets", sa.Integer(), nullable=True),
        sa.Column("used", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sample_files"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_sample_files_model_id_models"),
        sa.UniqueConstraint("model_id", "sha256", name="uq_sample_files_model_id_sha256"),
    )
    op.create_index("ix_sample_files_expires_at", "sample_files", ["expires_at"])
    op.create_index("ix_sample_files_sha256", "sample_files", ["sha256"])


def downgrade() -> None:
    op.execute(sa.text("DELETE FROM steps WHERE kind = 'samples'"))  # an older tunefarm does not know them
    op.drop_table("sample_files")
