"""Count a step's own failures apart from losses of its worker or device.

Revision ID: 0008
Revises: 0007
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("steps", sa.Column("faults", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("steps", "faults")
