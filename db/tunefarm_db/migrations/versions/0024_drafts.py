"""Drafts: what jobs offer until they have an artifact.

Revision ID: 0024
Revises: 0023
Created: 2026-11-26
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drafts",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tasks", sa.Integer(), nullable=False),
        sa.Column("covered", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_drafts"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_drafts_job_id_jobs"),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name="fk_drafts_sha256_blobs"),
    )
    op.create_index("ix_drafts_created_at", "drafts", ["created_at"])


def downgrade() -> None:
    # An older tunefarm knows no such step. The files go at its next sweep.
    op.execute("DELETE FROM steps WHERE kind = 'draft'")
    op.drop_table("drafts")
