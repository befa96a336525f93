"""First schema.

Revision ID: 0001
Revises: nothing
Created: 2026-11-21
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blobs")),
    )
    op.create_table(
        "devices",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("device_key", sa.Text(), nullable=False),
        sa.Column("target", sa.JSON(), nullable=False),
        sa.Column("info", sa.JSON(), nullable=False),
        sa.Column("device_model", sa.Text(), nullable=False),
        sa.Column("tracker_host", sa.Text(), nullable=False),
        sa.Column("tracker_port", sa.Integer(), nullable=False),
        sa.Column("rpc_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("last_seen_at", sa.Double(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_devices")),
        sa.UniqueConstraint("name", name=op.f("uq_devices_name")),
    )
    with op.batch_alter_table("devices", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_devices_device_key_state"), ["device_key", "state"], unique=False
        )

    op.create_table(
        "models",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("shapes", sa.JSON(), nullable=False),
        sa.Column("shapes_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("inputs", sa.JSON(), nullable=False),
        sa.Column("outputs", sa.JSON(), nullable=False),
        sa.Column("operators", sa.JSON(), nullable=False),
        sa.Column("opset", sa.Integer(), nullable=True),
        sa.Column("num_params", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
    )
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.create_index(
            "uq_models_sha256_shapes_key",
            ["sha256", "shapes_key"],
            unique=True,
            sqlite_where=sa.text("state != 'deleted'"),
            postgresql_where=sa.text("state != 'deleted'"),
        )

    op.create_table(
        "workloads",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("flops", sa.Double(), nullable=False),
        sa.Column("args", sa.JSON(), nullable=False),
        sa.Column("ir", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", "toolchain", name=op.f("pk_workloads")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("target", sa.JSON(), nullable=False),
        sa.Column("target_key", sa.Text(), nullable=False),
        sa.Column("device_key", sa.Text(), nullable=False),
        sa.Column("tuner", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("budget", sa.JSON(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("request_digest", sa.Text(), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("started_tuning_at", sa.Double(), nullable=True),
        sa.Column("tuned_sec", sa.Double(), nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("trials_since_improvement", sa.Integer(), nullable=False),
        sa.Column("best_latency_sec", sa.Double(), nullable=True),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("progress", sa.JSON(), nullable=False),
        sa.Column("event_seq", sa.Integer(), nullable=False),
        sa.Column("artifact_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_jobs_model_id_models")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_jobs_idempotency_key")),
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_model_id"), ["model_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_state_id"), ["state", "id"], unique=False)

    op.create_table(
        "model_tasks",
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_model_tasks_model_id_models")),
        sa.ForeignKeyConstraint(
            ["workload_key", "toolchain"],
            ["workloads.key", "workloads.toolchain"],
            name=op.f("fk_model_tasks_workload_key_toolchain_workloads"),
        ),
        sa.PrimaryKeyConstraint("model_id", "pipeline", "toolchain", "position", name=op.f("pk_model_tasks")),
    )
    op.create_table(
        "artifacts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_artifacts_job_id_jobs")),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name=op.f("fk_artifacts_sha256_blobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("job_id", name=op.f("uq_artifacts_job_id")),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_events_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_events")),
    )
    op.create_table(
        "job_tasks",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.Text(), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("space", sa.JSON(), nullable=True),
        sa.Column("space_key", sa.Text(), nullable=True),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("best_cost_sec", sa.Double(), nullable=True),
        sa.Column("untuned_cost_sec", sa.Double(), nullable=True),
        sa.Column("spent_sec", sa.Double(), nullable=False),
        sa.Column("exhausted", sa.Boolean(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("history", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_tasks_job_id_jobs")),
        sa.ForeignKeyConstraint(
            ["workload_key", "toolchain"],
            ["workloads.key", "workloads.toolchain"],
            name=op.f("fk_job_tasks_workload_key_toolchain_workloads"),
        ),
        sa.PrimaryKeyConstraint("job_id", "position", name=op.f("pk_job_tasks")),
    )
    op.create_table(
        "records",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("target_key", sa.Text(), nullable=False),
        sa.Column("device_model", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.Text(), nullable=False),
        sa.Column("space_key", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("cost_sec", sa.Double(), nullable=True),
        sa.Column("samples_sec", sa.JSON(), nullable=False),
        sa.Column("build_sec", sa.Double(), nullable=False),
        sa.Column("measured_at", sa.Double(), nullable=False),
        sa.Column("tuner", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("extra", sa.JSON(), nullable=True),
        sa.Column("device_id", sa.Text(), nullable=True),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name=op.f("fk_records_device_id_devices")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_records_job_id_jobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_records")),
    )
    with op.batch_alter_table("records", schema=None) as batch_op:
        batch_op.create_index(
            "ix_records_best",
            ["workload_key", "target_key", "device_model", "toolchain", "cost_sec"],
            unique=False,
            sqlite_where=sa.text("cost_sec IS NOT NULL"),
            postgresql_where=sa.text("cost_sec IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_records_history",
            ["workload_key", "target_key", "device_model", "toolchain", "id"],
            unique=False,
        )
        batch_op.create_index(batch_op.f("ix_records_job_id_id"), ["job_id", "id"], unique=False)

    op.create_table(
        "steps",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("sent_at", sa.Double(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_steps_job_id_jobs")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_steps_model_id_models")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
        sa.UniqueConstraint("kind", "subject_id", "round", name=op.f("uq_steps_kind_subject_id_round")),
    )
    with op.batch_alter_table("steps", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_steps_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_steps_state_not_before"), ["state", "not_before"], unique=False)

    op.create_table(
        "trials",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("config_key", sa.Text(), nullable=False),
        sa.Column("asked_key", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("cost_sec", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("build_sec", sa.Double(), nullable=False),
        sa.Column("run_sec", sa.Double(), nullable=False),
        sa.Column("measured_at", sa.Double(), nullable=False),
        sa.Column("record_id", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_trials_job_id_jobs")),
        sa.ForeignKeyConstraint(["record_id"], ["records.id"], name=op.f("fk_trials_record_id_records")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
        sa.UniqueConstraint("job_id", "round", "ordinal", name=op.f("uq_trials_job_id_round_ordinal")),
    )
    with op.batch_alter_table("trials", schema=None) as batch_op:
        batch_op.create_index(
            "uq_trials_job_id_position_config_key",
            ["job_id", "position", "config_key"],
            unique=True,
            sqlite_where=sa.text("outcome != 'infrastructure-error'"),
            postgresql_where=sa.text("outcome != 'infrastructure-error'"),
        )


def downgrade() -> None:
    with op.batch_alter_table("trials", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_trials_job_id_position_config_key",
            sqlite_where=sa.text("outcome != 'infrastructure-error'"),
            postgresql_where=sa.text("outcome != 'infrastructure-error'"),
        )

    op.drop_table("trials")
    with op.batch_alter_table("steps", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_steps_state_not_before"))
        batch_op.drop_index(batch_op.f("ix_steps_job_id"))

    op.drop_table("steps")
    with op.batch_alter_table("records", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_records_job_id_id"))
        batch_op.drop_index("ix_records_history")
        batch_op.drop_index(
            "ix_records_best",
            sqlite_where=sa.text("cost_sec IS NOT NULL"),
            postgresql_where=sa.text("cost_sec IS NOT NULL"),
        )

    op.drop_table("records")
    op.drop_table("job_tasks")
    op.drop_table("events")
    op.drop_table("artifacts")
    op.drop_table("model_tasks")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_state_id"))
        batch_op.drop_index(batch_op.f("ix_jobs_model_id"))

    op.drop_table("jobs")
    op.drop_table("workloads")
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_models_sha256_shapes_key",
            sqlite_where=sa.text("state != 'deleted'"),
            postgresql_where=sa.text("state != 'deleted'"),
        )

    op.drop_table("models")
    with op.batch_alter_table("devices", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_devices_device_key_state"))

    op.drop_table("devices")
    op.drop_table("blobs")
    op.drop_table("api_keys")
