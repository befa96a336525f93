"""Imported records count in the bytes of the key that imported them, and measurements for the key that asked for them.

Revision ID: 0036
Revises: 0035
Created: 2026-11-30
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_IMPORTED = sa.text("owner IS NOT NULL")


def upgrade() -> None:
    op.add_column("records", sa.Column("size_bytes", sa.Integer(), nullable=True))
    op.create_index(
        "ix_records_imported",
        "records",
        ["owner", "size_bytes"],
        sqlite_where=_IMPORTED,
        postgresql_where=_IMPORTED,
    )

    op.add_column("steps", sa.Column("asked_by", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("steps", "asked_by")
    op.drop_index("ix_records_imported", "records")
    op.drop_column("records", "size_bytes")
