"""The tables. Rows never leave this package: repositories return `tunefarm_db.values`.

No relationships: every query is written out in a repository, so none can hide in an attribute access.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from tunefarm_db.columns import db_now
from tunefarm_db.device_tables import CalibrationRow as CalibrationRow  # noqa: PLC0414  (also found here)
from tunefarm_db.device_tables import DeviceChangeRow as DeviceChangeRow  # noqa: PLC0414  (also found here)
from tunefarm_db.device_tables import DeviceSlotRow as DeviceSlotRow  # noqa: PLC0414  (also found here)
from tunefarm_db.job_state import JobState
from tunefarm_db.source_values import SourceState
from tunefarm_db.table_base import Base as Base  # noqa: PLC0414  (also found here)
from tunefarm_db.table_base import table_of as table_of  # noqa: PLC0414  (also found here)
from tunefarm_db.upload_values import UploadState
from tunefarm_db.values import DeviceState, Json, ModelState, StepKind, StepState
from tunefarm_db.webhook_values import DeliveryState


class BlobRow(Base):
    __tablename__ = "blobs"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    media_type: Mapped[str]
    created_at: Mapped[float] = mapped_column(default=db_now())


class ModelRow(Base):
    __tablename__ = "models"
    __table_args__ = (
        Index(
            "uq_models_sha256_shapes_key",
            "sha256",
            "shapes_key",
            unique=True,
            sqlite_where=text("state != 'deleted'"),
            postgresql_where=text("state != 'deleted'"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    # No foreign key: a deleted model remembers its hash when the blob is gone.
    sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    shapes: Mapped[Json]
    shapes_key: Mapped[str]
    state: Mapped[ModelState]
    error: Mapped[Json | None]
    inputs: Mapped[list[Any]]
    outputs: Mapped[list[Any]]
    operators: Mapped[list[Any]]
    opset: Mapped[int | None]
    num_params: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[float] = mapped_column(default=db_now())
    updated_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())


class UploadRow(Base):
    __tablename__ = "uploads"
    __table_args__ = (Index(None, "api_key_id", "id"), Index(None, "expires_at"))

    id: Mapped[str] = mapped_column(primary_key=True)
    # No foreign keys: it outlives neither its time nor its use, and nothing hangs on it.
    api_key_id: Mapped[str]
    name: Mapped[str]
    shapes: Mapped[Json]
    # The attribute cannot have the column's name: the base class has that one.
    metadata_: Mapped[str] = mapped_column("metadata")
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str | None]
    offset_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    state: Mapped[UploadState] = mapped_column(default=UploadState.OPEN)
    digest: Mapped[str | None]
    model_id: Mapped[str | None]
    error: Mapped[Json | None]
    created_at: Mapped[float] = mapped_column(default=db_now())
    expires_at: Mapped[float]


class WorkloadRow(Base):
    __tablename__ = "workloads"

    key: Mapped[str] = mapped_column(primary_key=True)
    toolchain: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    flops: Mapped[float]
    args: Mapped[list[Any]]
    ir: Mapped[str]
    created_at: Mapped[float] = mapped_column(default=db_now())


class SpaceRow(Base):
    __tablename__ = "config_spaces"
    __table_args__ = (
        ForeignKeyConstraint(["workload_key", "toolchain"], ["workloads.key", "workloads.toolchain"]),
        Index(None, "target_key", "toolchain", "family"),
    )

    workload_key: Mapped[str] = mapped_column(primary_key=True)
    target_key: Mapped[str] = mapped_column(primary_key=True)
    toolchain: Mapped[str] = mapped_column(primary_key=True)
    space: Mapped[Json]
    space_key: Mapped[str]
    family: Mapped[str | None]
    extents: Mapped[list[Any]]
    created_at: Mapped[float] = mapped_column(default=db_now())


class ModelTaskRow(Base):
    __tablename__ = "model_tasks"
    __table_args__ = (
        ForeignKeyConstraint(["workload_key", "toolchain"], ["workloads.key", "workloads.toolchain"]),
    )

    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    pipeline: Mapped[str] = mapped_column(primary_key=True)
    toolchain: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    workload_key: Mapped[str]
    weight: Mapped[int]


class JobRow(Base):
    __tablename__ = "jobs"
    __table_args__ = (Index(None, "state", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), index=True)
    target: Mapped[Json]
    target_key: Mapped[str]
    device_key: Mapped[str]
    tuner: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    budget: Mapped[Json]
    options: Mapped[Json]
    state: Mapped[JobState]
    error: Mapped[Json | None]
    idempotency_key: Mapped[str | None] = mapped_column(unique=True)
    request_digest: Mapped[str | None]
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    turn_sec: Mapped[float] = mapped_column(default=0.0, server_default="0")
    started_tuning_at: Mapped[float | None]
    tuned_sec: Mapped[float] = mapped_column(default=0.0)
    counted_until: Mapped[float | None]
    trials: Mapped[int] = mapped_column(default=0)
    failures: Mapped[int] = mapped_column(default=0)
    trials_since_improvement: Mapped[int] = mapped_column(default=0)
    best_latency_sec: Mapped[float | None]
    stop_reason: Mapped[str | None]
    progress: Mapped[Json]
    event_seq: Mapped[int] = mapped_column(default=0)
    # No foreign key: artifacts point at jobs, and a circle of keys cannot be created in one pass on SQLite.
    artifact_id: Mapped[str | None]
    created_at: Mapped[float] = mapped_column(default=db_now())
    updated_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())
    finished_at: Mapped[float | None]


class JobTaskRow(Base):
    __tablename__ = "job_tasks"
    __table_args__ = (
        ForeignKeyConstraint(["workload_key", "toolchain"], ["workloads.key", "workloads.toolchain"]),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    workload_key: Mapped[str]
    toolchain: Mapped[str]
    weight: Mapped[int]
    name: Mapped[str]
    space_key: Mapped[str | None]
    trials: Mapped[int] = mapped_column(default=0)
    failures: Mapped[int] = mapped_column(default=0)
    best_cost_sec: Mapped[float | None]
    untuned_cost_sec: Mapped[float | None]
    spent_sec: Mapped[float] = mapped_column(default=0.0)
    exhausted: Mapped[bool] = mapped_column(default=False)
    rounds: Mapped[int] = mapped_column(default=0)
    confirmations: Mapped[int] = mapped_column(default=0, server_default="0")
    history: Mapped[list[Any]] = mapped_column(default=list)


class StepRow(Base):
    __tablename__ = "steps"
    __table_args__ = (
        # A second barrier: the same step cannot be planned twice, whoever plans it.
        UniqueConstraint("kind", "subject_id", "round"),
        Index(None, "state", "not_before"),
        Index(None, "job_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[StepKind]
    subject_id: Mapped[str]
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    round: Mapped[int]
    state: Mapped[StepState] = mapped_column(default=StepState.READY)
    fence: Mapped[int] = mapped_column(default=0)
    lease_owner: Mapped[str | None]
    lease_until: Mapped[float | None]
    attempts: Mapped[int] = mapped_column(default=0)
    faults: Mapped[int] = mapped_column(default=0, server_default="0")
    not_before: Mapped[float] = mapped_column(default=db_now())
    sent_at: Mapped[float | None]
    error: Mapped[Json | None]
    in_flight: Mapped[Json | None]
    created_at: Mapped[float] = mapped_column(default=db_now())
    finished_at: Mapped[float | None]


class RecordRow(Base):
    __tablename__ = "records"
    __table_args__ = (
        # The best record of a workload is this index's first entry, however many records there are.
        Index(
            "ix_records_best",
            "workload_key",
            "target_key",
            "device_model",
            "toolchain",
            "cost_sec",
            sqlite_where=text("cost_sec IS NOT NULL AND superseded = 0"),
            postgresql_where=text("cost_sec IS NOT NULL AND NOT superseded"),
        ),
        Index(
            "ix_records_confirmed",
            "workload_key",
            "target_key",
            "device_model",
            "toolchain",
            sqlite_where=text("confirmed = 1"),
            postgresql_where=text("confirmed"),
        ),
        Index("ix_records_history", "workload_key", "target_key", "device_model", "toolchain", "id"),
        Index(None, "job_id", "id"),
        # The newest of a kind, also where none of the newer ones is of it.
        Index(None, "target_key", "id"),
        Index(None, "device_model", "id"),
        Index(None, "device_id", "id"),
        Index(None, "toolchain", "id"),
        Index(
            "ix_records_failed",
            "outcome",
            "id",
            sqlite_where=text("outcome != 'ok'"),
            postgresql_where=text("outcome != 'ok'"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    workload_key: Mapped[str]
    target_key: Mapped[str]
    device_model: Mapped[str]
    toolchain: Mapped[str]
    space_key: Mapped[str]
    config: Mapped[list[Any]]
    outcome: Mapped[str]
    cost_sec: Mapped[float | None]
    samples_sec: Mapped[list[Any]]
    build_sec: Mapped[float]
    measured_at: Mapped[float]
    tuner: Mapped[str]
    message: Mapped[str]
    extra: Mapped[Json | None]
    confirmed: Mapped[bool] = mapped_column(default=False, server_default=false())
    superseded: Mapped[bool] = mapped_column(default=False, server_default=false())
    device_id: Mapped[str | None] = mapped_column(ForeignKey("devices.id"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    created_at: Mapped[float] = mapped_column(default=db_now())


class TrialRow(Base):
    __tablename__ = "trials"
    __table_args__ = (
        # A failure of the infrastructure says nothing about the config: it may be tried again.
        Index(
            "uq_trials_job_id_position_config_key",
            "job_id",
            "position",
            "config_key",
            unique=True,
            sqlite_where=text("outcome != 'infrastructure-error'"),
            postgresql_where=text("outcome != 'infrastructure-error'"),
        ),
        # With the index above, all trials of one task of a job: what a tuner is told before every round.
        Index(
            "ix_trials_lost",
            "job_id",
            "position",
            sqlite_where=text("outcome = 'infrastructure-error'"),
            postgresql_where=text("outcome = 'infrastructure-error'"),
        ),
        UniqueConstraint("job_id", "round", "ordinal"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    position: Mapped[int]
    round: Mapped[int]
    ordinal: Mapped[int]
    config_key: Mapped[str]
    asked_key: Mapped[str]
    outcome: Mapped[str]
    cost_sec: Mapped[float | None]
    message: Mapped[str]
    build_sec: Mapped[float]
    run_sec: Mapped[float]
    measured_at: Mapped[float]
    record_id: Mapped[str | None] = mapped_column(ForeignKey("records.id"))


class DeviceRow(Base):
    __tablename__ = "devices"
    __table_args__ = (Index(None, "device_key", "state"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    device_key: Mapped[str]
    target: Mapped[Json]
    info: Mapped[Json]
    device_model: Mapped[str]
    tracker_host: Mapped[str]
    tracker_port: Mapped[int]
    rpc_key: Mapped[str]
    state: Mapped[DeviceState]
    reason: Mapped[str] = mapped_column(default="")
    ready: Mapped[bool] = mapped_column(default=False)
    held: Mapped[bool] = mapped_column(default=False)
    calibration: Mapped[Json | None]
    calibrate_at: Mapped[float | None]
    last_seen_at: Mapped[float] = mapped_column(default=db_now())
    state_since: Mapped[float | None] = mapped_column(default=db_now())
    lease_owner: Mapped[str | None]
    leased_at: Mapped[float | None]
    lease_until: Mapped[float | None]
    fence: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[float] = mapped_column(default=db_now())


class DevicePeakRow(Base):
    __tablename__ = "device_peaks"

    device_id: Mapped[str] = mapped_column(ForeignKey("devices.id"), primary_key=True)
    key: Mapped[str]
    peak: Mapped[Json]
    measured_at: Mapped[float] = mapped_column(default=db_now())


class ApiKeyRow(Base):
    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    secret_sha256: Mapped[str]
    scopes: Mapped[list[Any]]
    created_at: Mapped[float] = mapped_column(default=db_now())
    last_used_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    expires_at: Mapped[float | None]
    device_name: Mapped[str | None]
    device_key: Mapped[str | None]


class EventRow(Base):
    __tablename__ = "events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    data: Mapped[Json]
    created_at: Mapped[float] = mapped_column(default=db_now())


class WebhookRow(Base):
    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str]
    kinds: Mapped[list[Any]]
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    secret: Mapped[str]
    failures: Mapped[int] = mapped_column(default=0)
    failing_since: Mapped[float | None]
    disabled_at: Mapped[float | None]
    disabled_reason: Mapped[str] = mapped_column(default="")
    created_at: Mapped[float] = mapped_column(default=db_now())


class WebhookDeliveryRow(Base):
    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        Index(None, "webhook_id", "id"),
        Index(
            "ix_webhook_deliveries_pending",
            "webhook_id",
            "job_id",
            "seq",
            sqlite_where=text("state = 'pending'"),
            postgresql_where=text("state = 'pending'"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    # No foreign key: a webhook that is deleted while a job writes an event must not make that fail.
    webhook_id: Mapped[str]
    job_id: Mapped[str | None]
    seq: Mapped[int | None]
    kind: Mapped[str]
    state: Mapped[DeliveryState] = mapped_column(default=DeliveryState.PENDING)
    attempts: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[float] = mapped_column(default=db_now())
    lease_until: Mapped[float | None]
    status: Mapped[int | None]
    latency_sec: Mapped[float | None]
    error: Mapped[str] = mapped_column(default="")
    created_at: Mapped[float] = mapped_column(default=db_now())
    finished_at: Mapped[float | None]


class ArtifactRow(Base):
    __tablename__ = "artifacts"

    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    name: Mapped[str]
    manifest: Mapped[Json]
    report: Mapped[Json]
    created_at: Mapped[float] = mapped_column(default=db_now())


class SourceRow(Base):
    __tablename__ = "kernel_sources"

    key: Mapped[str] = mapped_column(primary_key=True)
    record_id: Mapped[str] = mapped_column(ForeignKey("records.id"))
    target: Mapped[Json]
    state: Mapped[SourceState]
    error: Mapped[Json | None]
    sha256: Mapped[str | None] = mapped_column(ForeignKey("blobs.sha256"))
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[float] = mapped_column(default=db_now())
    updated_at: Mapped[float] = mapped_column(default=db_now())


class CounterRow(Base):
    __tablename__ = "counters"

    name: Mapped[str] = mapped_column(primary_key=True)
    label: Mapped[str] = mapped_column(primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[float]
