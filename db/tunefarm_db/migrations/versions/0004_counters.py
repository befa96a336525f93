"""Add running totals, so that the metrics need not count the whole history.

Revision ID: 0004
Revises: 0003
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "label", "slot", name="pk_counters"),
    )
    op.execute(
        "INSERT INTO counters (name, label, slot, value) "
        "SELECT 'trials', outcome, 0, count(*) FROM trials GROUP BY outcome"
    )
    op.execute(
        "INSERT INTO counters (name, label, slot, value) "
        "SELECT 'build_sec', '', 0, sum(build_sec) FROM trials HAVING count(*) > 0"
    )
    op.execute(
        "INSERT INTO counters (name, label, slot, value) "
        "SELECT 'measure_sec', coalesce(records.device_id, ''), 0, sum(run_sec) "
        "FROM trials LEFT JOIN records ON records.id = trials.record_id "
        "GROUP BY coalesce(records.device_id, '')"
    )


def downgrade() -> None:
    op.drop_table("counters")
