"""Imported records have an owner, as everything else that a key makes.

Revision ID: 0035
Revises: 0034
Created: 2026-11-30
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("records", sa.Column("owner", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("records", "owner")
