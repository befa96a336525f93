"""Models store the sets of shapes that they are tuned for.

Revision ID: 0016
Revises: 0015
Created: 2026-11-23
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("specialisations", sa.JSON(), nullable=False, server_default="[]"))


def downgrade() -> None:
    # An older tunefarm cannot read their shapes. Jobs and records refer to them, so they stay as deleted.
    op.execute(
        sa.text(
            "UPDATE models SET state = 'deleted', shapes = '{}' WHERE CAST(specialisations AS TEXT) != '[]'"
        )
    )
    op.drop_column("models", "specialisations")
