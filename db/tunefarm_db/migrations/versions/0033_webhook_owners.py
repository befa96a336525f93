"""Webhooks have an owner, as everything else that a key makes.

Revision ID: 0033
Revises: 0032
Created: 2026-11-28
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("webhooks", sa.Column("owner", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("webhooks", "owner")
