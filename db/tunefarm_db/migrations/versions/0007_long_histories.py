"""Add indexes for long histories: records by outcome or kind, and the trials of a task.

Revision ID: 0007
Revises: 0006
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_LOST = sa.text("outcome = 'infrastructure-error'")
_FAILED = sa.text("outcome != 'ok'")
_KINDS = ("target_key", "device_model", "toolchain")


def upgrade() -> None:
    op.create_index(
        "ix_trials_lost", "trials", ["job_id", "position"], sqlite_where=_LOST, postgresql_where=_LOST
    )
    op.create_index(
        "ix_records_failed", "records", ["outcome", "id"], sqlite_where=_FAILED, postgresql_where=_FAILED
    )
    for kind in _KINDS:
        op.create_index(f"ix_records_{kind}_id", "records", [kind, "id"])


def downgrade() -> None:
    for kind in reversed(_KINDS):
        op.drop_index(f"ix_records_{kind}_id", table_name="records")
    op.drop_index("ix_records_failed", table_name="records")
    op.drop_index("ix_trials_lost", table_name="trials")
