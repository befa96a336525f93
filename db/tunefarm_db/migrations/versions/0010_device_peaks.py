"""Add the peaks of devices.

Revision ID: 0010
Revises: 0009
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "device_peaks",
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("peak", sa.JSON(), nullable=False),
        sa.Column("measured_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("device_id", name="pk_device_peaks"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_device_peaks_device_id_devices"),
    )


def downgrade() -> None:
    op.drop_table("device_peaks")
