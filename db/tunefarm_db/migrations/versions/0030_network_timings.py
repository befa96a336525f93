"""Networks that searches compile with their kernels so far, and how fast they are.

Revision ID: 0030
Revises: 0029
Created: 2026-11-26
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "network_timings",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("inputs_sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tasks", sa.Integer(), nullable=False),
        sa.Column("covered", sa.Integer(), nullable=False),
        sa.Column("began_sec", sa.Double(), nullable=False),
        sa.Column("costs", sa.JSON(), nullable=False),
        sa.Column("expected_sec", sa.Double(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("not_before", sa.Double(), nullable=False, server_default="0"),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("latency_sec", sa.Double(), nullable=True),
        sa.Column("low_sec", sa.Double(), nullable=True),
        sa.Column("high_sec", sa.Double(), nullable=True),
        sa.Column("quiet", sa.Boolean(), nullable=True),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("tuned_sec", sa.Double(), nullable=True),
        sa.Column("spent_sec", sa.Double(), nullable=False, server_default="0"),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("timed_at", sa.Double(), nullable=True),
        sa.Column("envelope", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_network_timings"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_network_timings_job_id_jobs"),
    )
    op.create_index("ix_network_timings_sha256", "network_timings", ["sha256"])
    op.create_index("ix_network_timings_inputs_sha256", "network_timings", ["inputs_sha256"])


def downgrade() -> None:
    # What jobs show that have no artifact was measured by no part of an older tunefarm.
    op.execute("UPDATE jobs SET network_latency_sec = NULL WHERE artifact_id IS NULL")
    # An older tunefarm knows one draft step a job.
    op.execute("DELETE FROM steps WHERE kind = 'draft' AND round > 0")
    op.drop_table("network_timings")
