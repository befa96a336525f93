"""Devices have a calibration and a person's hold; keys can expire and belong to one device.

Revision ID: 0003
Revises: 0002
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_OF_DEVICES = ("ready", "held", "calibration", "calibrate_at")
_OF_KEYS = ("expires_at", "device_name", "device_key")


def upgrade() -> None:
    for name in ("ready", "held"):
        op.add_column("devices", sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("devices", sa.Column("calibration", sa.JSON(), nullable=True))
    op.add_column("devices", sa.Column("calibrate_at", sa.Double(), nullable=True))
    op.execute("UPDATE devices SET ready = (state <> 'offline')")
    op.add_column("api_keys", sa.Column("expires_at", sa.Double(), nullable=True))
    for name in ("device_name", "device_key"):
        op.add_column("api_keys", sa.Column(name, sa.Text(), nullable=True))


def downgrade() -> None:
    # The older program does not know these states.
    op.execute("UPDATE devices SET state = 'quarantined' WHERE state IN ('draining', 'removed')")
    op.execute("UPDATE devices SET state = 'offline' WHERE state = 'checking'")
    # A key that is bound to a device, or expires, must not become an unlimited one.
    op.execute(
        "DELETE FROM api_keys WHERE expires_at IS NOT NULL OR device_name IS NOT NULL OR device_key IS NOT NULL"
    )
    for name in reversed(_OF_KEYS):
        op.drop_column("api_keys", name)
    for name in reversed(_OF_DEVICES):
        op.drop_column("devices", name)
