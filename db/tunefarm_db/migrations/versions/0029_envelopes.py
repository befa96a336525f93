"""Artifacts and drafts have the signed statement about them.

Revision ID: 0029
Revises: 0028
Created: 2026-11-26
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_TABLES = ("artifacts", "drafts")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("envelope", sa.Text(), nullable=True))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "envelope")
