"""Tasks name the kernel that they are an alternative to.

Revision ID: 0014
Revises: 0013
Created: 2026-11-22
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("model_tasks", "job_tasks"):
        op.add_column(table, sa.Column("alternative", sa.JSON(), nullable=True))
    # Tasks of an older tunefarm lack alternatives: a model's next job extracts them again.
    op.execute(sa.text("DELETE FROM model_tasks WHERE pipeline = 'cpu'"))


def downgrade() -> None:
    # An older tunefarm would take alternatives for kernels of the network.
    op.execute(sa.text("DELETE FROM model_tasks WHERE alternative IS NOT NULL"))
    for table in ("job_tasks", "model_tasks"):
        op.drop_column(table, "alternative")
