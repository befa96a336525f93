"""Add quantised models: the networks that jobs of precision int8 compile, with what quantising cost.

Revision ID: 0025
Revises: 0024
Created: 2026-11-26
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "quantised_models",
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("quantisation", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_quantised_models_model_id_models"),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name="fk_quantised_models_sha256_blobs"),
        sa.PrimaryKeyConstraint("model_id", "terms", name="pk_quantised_models"),
    )
    op.create_index("ix_quantised_models_sha256", "quantised_models", ["sha256"])


def downgrade() -> None:
    op.drop_table("quantised_models")
