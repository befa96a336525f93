"""Models and uploads store the values of inputs that became constants.

Revision ID: 0018
Revises: 0017
Created: 2026-11-23
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_TABLES = ("models", "uploads")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("values", sa.JSON(), nullable=False, server_default=sa.text("'{}'")))


def downgrade() -> None:
    # An older tunefarm would compile such models with other inputs than they were imported with.
    op.execute(sa.text("UPDATE models SET state = 'deleted' WHERE CAST(\"values\" AS TEXT) <> '{}'"))
    op.execute(sa.text("DELETE FROM uploads WHERE CAST(\"values\" AS TEXT) <> '{}'"))
    for table in reversed(_TABLES):
        op.drop_column(table, "values")
