"""Jobs have a priority and the device time that they used, for fair turns; they can be paused.

Revision ID: 0005
Revises: 0004
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("turn_sec", sa.Double(), nullable=False, server_default="0"))


def downgrade() -> None:
    # The older program does not know this state and would fail on such a job.
    op.execute("UPDATE steps SET state = 'cancelled' WHERE state = 'paused'")
    op.execute("UPDATE jobs SET state = 'cancelled', cancel_requested = true WHERE state = 'paused'")
    op.drop_column("jobs", "turn_sec")
    op.drop_column("jobs", "priority")
