"""Tasks, config spaces and refused models store the revision of the engine that made them.

Revision ID: 0015
Revises: 0014
Created: 2026-11-22
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_TABLES = ("models", "model_tasks", "config_spaces")


def upgrade() -> None:
    # Existing rows are from an earlier engine: they are shown and learned from until a job makes them again.
    for table in _TABLES:
        op.add_column(table, sa.Column("revision", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    # An older tunefarm would use all tasks as its own. It makes spaces without a family again.
    op.execute(sa.text("DELETE FROM model_tasks WHERE revision > 0"))
    op.execute(sa.text("UPDATE config_spaces SET family = NULL WHERE revision > 0"))
    for table in reversed(_TABLES):
        op.drop_column(table, "revision")
