"""Add a table of config spaces; records say whether a confirmation superseded them.

Revision ID: 0002
Revises: 0001
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_PLACE = ["workload_key", "target_key", "device_model", "toolchain"]


def upgrade() -> None:
    op.create_table(
        "config_spaces",
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("target_key", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.Text(), nullable=False),
        sa.Column("space", sa.JSON(), nullable=False),
        sa.Column("space_key", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=True),
        sa.Column("extents", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workload_key", "toolchain"],
            ["workloads.key", "workloads.toolchain"],
            name=op.f("fk_config_spaces_workload_key_toolchain_workloads"),
        ),
        sa.PrimaryKeyConstraint("workload_key", "target_key", "toolchain", name=op.f("pk_config_spaces")),
    )
    op.create_index(
        op.f("ix_config_spaces_target_key_toolchain_family"),
        "config_spaces",
        ["target_key", "toolchain", "family"],
    )
    # The newest job's space of each workload and target; its family is determined when a round next needs it.
    op.execute(
        """
        INSERT INTO config_spaces (workload_key, target_key, toolchain, space, space_key, family, extents, created_at)
        SELECT task.workload_key, job.target_key, task.toolchain, task.space, task.space_key, NULL, '[]',
               job.created_at
        FROM job_tasks AS task JOIN jobs AS job ON job.id = task.job_id
        WHERE task.space IS NOT NULL AND task.space_key IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM job_tasks AS later JOIN jobs AS newer ON newer.id = later.job_id
            WHERE later.workload_key = task.workload_key AND newer.target_key = job.target_key
              AND later.toolchain = task.toolchain AND later.space IS NOT NULL AND later.space_key IS NOT NULL
              AND (newer.id > job.id OR (newer.id = job.id AND later.position > task.position)))
        """
    )
    op.drop_column("job_tasks", "space")
    op.add_column("job_tasks", sa.Column("confirmations", sa.Integer(), nullable=False, server_default="0"))

    op.drop_index("ix_records_best", "records")
    for name in ("confirmed", "superseded"):
        op.add_column("records", sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false()))
    _index_records(
        "ix_records_best",
        [*_PLACE, "cost_sec"],
        sqlite_where="cost_sec IS NOT NULL AND superseded = 0",
        postgresql_where="cost_sec IS NOT NULL AND NOT superseded",
    )
    _index_records("ix_records_confirmed", _PLACE, sqlite_where="confirmed = 1", postgresql_where="confirmed")


def downgrade() -> None:
    op.drop_index("ix_records_confirmed", "records")
    op.drop_index("ix_records_best", "records")
    for name in ("superseded", "confirmed"):
        op.drop_column("records", name)
    measured = "cost_sec IS NOT NULL"
    _index_records("ix_records_best", [*_PLACE, "cost_sec"], sqlite_where=measured, postgresql_where=measured)

    op.drop_column("job_tasks", "confirmations")
    op.add_column("job_tasks", sa.Column("space", sa.JSON(), nullable=True))
    op.execute(
        """
        UPDATE job_tasks SET space = (
            SELECT known.space FROM config_spaces AS known JOIN jobs AS job ON job.target_key = known.target_key
            WHERE job.id = job_tasks.job_id AND known.workload_key = job_tasks.workload_key
              AND known.toolchain = job_tasks.toolchain AND known.space_key = job_tasks.space_key)
        """
    )
    op.drop_index(op.f("ix_config_spaces_target_key_toolchain_family"), "config_spaces")
    op.drop_table("config_spaces")


def _index_records(name: str, columns: list[str], *, sqlite_where: str, postgresql_where: str) -> None:
    op.create_index(
        name,
        "records",
        columns,
        sqlite_where=sa.text(sqlite_where),
        postgresql_where=sa.text(postgresql_where),
    )
