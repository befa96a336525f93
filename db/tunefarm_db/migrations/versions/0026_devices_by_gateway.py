"""Devices say whether workers reach them over the farm's gateway.

Revision ID: 0026
Revises: 0025
Created: 2026-11-26
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("devices", sa.Column("by_gateway", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("devices", "by_gateway")
