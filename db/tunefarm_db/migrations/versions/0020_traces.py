"""Add traces: what each attempt at a step spent its time on.

Revision ID: 0020
Revises: 0019
Created: 2026-11-25
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "traces",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("spans", sa.JSON(), nullable=False),
        sa.Column("dropped", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_traces"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_traces_model_id_models"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_traces_job_id_jobs"),
    )
    op.create_index("ix_traces_model_id_job_id", "traces", ["model_id", "job_id"])
    op.create_index("ix_traces_job_id", "traces", ["job_id"])
    op.create_index("ix_traces_created_at", "traces", ["created_at"])


def downgrade() -> None:
    op.drop_table("traces")
