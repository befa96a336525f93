"""Add findings: what compiles found out about kernels and alternatives, for later ones.

Revision ID: 0021
Revises: 0020
Created: 2026-11-25
"""

from __future__ import annotations

import json
import time

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "findings",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_findings"),
    )
    op.create_index("ix_findings_created_at", "findings", ["created_at"])


def downgrade() -> None:
    op.drop_table("findings")
    _give_limits()


def _give_limits() -> None:
    """Give each job a limit that an older tunefarm reads: it knows neither jobs without a search nor budgets of the whole job."""
    connection = op.get_bind()
    names = ("trials", "wall_sec", "patience_trials", "min_gain_per_min")
    for job_id, stored, finished_at in connection.execute(
        sa.text("SELECT id, budget, finished_at FROM jobs")
    ).all():
        budget = json.loads(stored) if isinstance(stored, str) else stored
        if any(budget.get(name) is not None for name in names):
            continue
        limits = {"wall_sec": budget["job_sec"]} if budget.get("job_sec") is not None else {"trials": 1}
        values = {"id": job_id, "budget": json.dumps({**budget, **limits}), "now": time.time()}
        connection.execute(sa.text("UPDATE jobs SET budget = :budget WHERE id = :id"), values)
        if "trials" in limits and finished_at is None:  # it would search
            connection.execute(
                sa.text("UPDATE jobs SET state = 'cancelled', finished_at = :now WHERE id = :id"), values
            )
            connection.execute(
                sa.text(
                    "UPDATE steps SET state = 'cancelled', finished_at = :now WHERE job_id = :id AND finished_at IS NULL"
                ),
                values,
            )
