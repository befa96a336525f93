"""Models store which parts ONNX Runtime runs.

Revision ID: 0019
Revises: 0018
Created: 2026-11-23
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("models", sa.Column("parts", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("models", "parts")
