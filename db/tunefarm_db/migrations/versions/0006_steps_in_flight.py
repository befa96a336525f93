"""A job may run several rounds at once: each step stores what it works on; the job's wall-clock time is counted once.

Revision ID: 0006
Revises: 0005
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("steps", sa.Column("in_flight", sa.JSON(), nullable=True))
    op.add_column("jobs", sa.Column("counted_until", sa.Double(), nullable=True))


def downgrade() -> None:
    # The older program expects one open step per job: the others are dropped.
    op.execute(
        "UPDATE steps SET state = 'cancelled', lease_owner = NULL, lease_until = NULL"
        " WHERE kind = 'tune' AND state IN ('ready', 'leased', 'paused')"
        " AND EXISTS (SELECT 1 FROM steps AS newer WHERE newer.kind = 'tune' AND newer.job_id = steps.job_id"
        " AND newer.state IN ('ready', 'leased', 'paused') AND newer.round > steps.round)"
    )
    # It plans the round that follows its own, so no later round may exist.
    op.execute(
        "UPDATE steps SET round = 1 + (SELECT max(later.round) FROM steps AS later WHERE later.kind = 'tune'"
        " AND later.subject_id = steps.subject_id)"
        " WHERE kind = 'tune' AND state IN ('ready', 'leased', 'paused')"
        " AND EXISTS (SELECT 1 FROM steps AS newer WHERE newer.kind = 'tune'"
        " AND newer.subject_id = steps.subject_id AND newer.round > steps.round)"
    )
    op.drop_column("jobs", "counted_until")
    op.drop_column("steps", "in_flight")
