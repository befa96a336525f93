"""Records carry the certificate of the device's agent and the token of the session that measured them.

Revision ID: 0034
Revises: 0033
Created: 2026-11-29
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("certificate_sha256", "ticket_jti"):
        op.add_column("records", sa.Column(name, sa.Text(), nullable=True))


def downgrade() -> None:
    for name in ("ticket_jti", "certificate_sha256"):
        op.drop_column("records", name)
