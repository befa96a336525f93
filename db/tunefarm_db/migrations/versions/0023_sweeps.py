"""Sweeps: several jobs that were asked for together, with one budget.

Revision ID: 0023
Revises: 0022
Created: 2026-11-26
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("budget", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.Column("cancelled_at", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
        sa.UniqueConstraint("idempotency_key", name="uq_sweeps_idempotency_key"),
    )
    op.create_table(
        "sweep_cells",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=True),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("device_key", sa.Text(), nullable=False),
        sa.Column("precision", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("sweep_id", "position", name="pk_sweep_cells"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_sweep_cells_sweep_id_sweeps"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_sweep_cells_model_id_models"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_sweep_cells_job_id_jobs"),
        sa.UniqueConstraint("job_id", name="uq_sweep_cells_job_id"),
    )


def downgrade() -> None:
    # Their jobs stay, and end by themselves.
    op.drop_table("sweep_cells")
    op.drop_table("sweeps")
