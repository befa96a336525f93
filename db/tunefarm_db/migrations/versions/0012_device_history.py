"""Add the history of devices: changes of state, calibrations, use and vitals by the minute, records by device.

Revision ID: 0012
Revises: 0011
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("devices", sa.Column("state_since", sa.Double(), nullable=True))
    op.add_column("devices", sa.Column("leased_at", sa.Double(), nullable=True))
    op.create_table(
        "device_changes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_device_changes"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_device_changes_device_id_devices"),
    )
    op.create_table(
        "calibrations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("time_sec", sa.Double(), nullable=True),
        sa.Column("reference_sec", sa.Double(), nullable=True),
        sa.Column("all_cores_sec", sa.Double(), nullable=True),
        sa.Column("all_cores_reference_sec", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calibrations"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_calibrations_device_id_devices"),
    )
    for table in ("device_changes", "calibrations"):
        op.create_index(f"ix_{table}_device_id_id", table, ["device_id", "id"])
        op.create_index(f"ix_{table}_created_at", table, ["created_at"])
    op.create_table(
        "device_slots",
        sa.Column("device_id", sa.Text(), nullable=False),
        sa.Column("slot_at", sa.BigInteger(), nullable=False),
        sa.Column("width_sec", sa.Integer(), nullable=False),
        sa.Column("work_sec", sa.Double(), nullable=False),
        sa.Column("calibration_sec", sa.Double(), nullable=False),
        sa.Column("measured_sec", sa.Double(), nullable=False),
        sa.Column("beats", sa.Integer(), nullable=False),
        sa.Column("load", sa.Double(), nullable=True),
        sa.Column("temperature_celsius", sa.Double(), nullable=True),
        sa.Column("clock_mhz", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("device_id", "slot_at", name="pk_device_slots"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_device_slots_device_id_devices"),
    )
    op.create_index("ix_records_device_id_id", "records", ["device_id", "id"])
    op.execute(
        "INSERT INTO counters (name, label, slot, value) "
        "SELECT 'device_outcomes', records.device_id || ' ' || trials.outcome, 0, count(*) "
        "FROM trials JOIN records ON records.id = trials.record_id "
        "WHERE records.device_id IS NOT NULL GROUP BY records.device_id, trials.outcome"
    )


def downgrade() -> None:
    op.execute("DELETE FROM counters WHERE name = 'device_outcomes'")
    op.drop_index("ix_records_device_id_id", table_name="records")
    op.drop_table("device_slots")
    for table in ("calibrations", "device_changes"):
        op.drop_table(table)
    op.drop_column("devices", "leased_at")
    op.drop_column("devices", "state_since")
