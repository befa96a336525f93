"""Tables of jobs: their tasks, steps, trials, events and artifacts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from tunefarm_db.states.job import JobState
from tunefarm_db.tables.base import Base
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, StepKind, StepState


class JobRow(Base):
    """A tuning job: its terms, state and progress."""

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
    tags: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    note: Mapped[str] = mapped_column(default="", server_default="")
    network_latency_sec: Mapped[float | None]
    speedups: Mapped[Json] = mapped_column(default=dict, server_default=text("'{}'"))
    over_untuned: Mapped[float | None]
    over_runtime: Mapped[float | None]
    owner: Mapped[str | None] = mapped_column(index=True)
    created_at: Mapped[float] = mapped_column(default=db_now())
    updated_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())
    finished_at: Mapped[float | None]


class SweepRow(Base):
    """Several jobs that were asked for together, with one budget."""

    __tablename__ = "sweeps"

    id: Mapped[str] = mapped_column(primary_key=True)
    budget: Mapped[Json]
    tags: Mapped[list[Any]] = mapped_column(default=list)
    note: Mapped[str] = mapped_column(default="")
    idempotency_key: Mapped[str | None] = mapped_column(unique=True)
    request_digest: Mapped[str]
    cancelled_at: Mapped[float | None]
    owner: Mapped[str | None]
    created_at: Mapped[float] = mapped_column(default=db_now())


class SweepCellRow(Base):
    """One combination of a sweep: its job, or why there is none."""

    __tablename__ = "sweep_cells"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweeps.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    model_id: Mapped[str | None] = mapped_column(ForeignKey("models.id"))
    model_name: Mapped[str]
    device_key: Mapped[str]
    precision: Mapped[str]
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), unique=True)
    error: Mapped[Json | None]


class JobTaskRow(Base):
    """A tuning task of a job: its weight, trials and best cost."""

    __tablename__ = "job_tasks"
    __table_args__ = (
        ForeignKeyConstraint(["workload_key", "toolchain"], ["workloads.key", "workloads.toolchain"]),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    workload_key: Mapped[str]
    toolchain: Mapped[str]
    weight: Mapped[int]
    alternative: Mapped[Json | None]
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
    """A step of a job, model or source: its state, lease and fence."""

    __tablename__ = "steps"
    __table_args__ = (
        # A second barrier: the same step cannot be planned twice.
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
    asked_by: Mapped[str | None]


class TraceRow(Base):
    """The spans of one attempt at a step, or of an upload."""

    __tablename__ = "traces"
    __table_args__ = (Index(None, "model_id", "job_id"), Index(None, "job_id"), Index(None, "created_at"))

    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))
    spans: Mapped[list[Any]]
    dropped: Mapped[int]
    created_at: Mapped[float] = mapped_column(default=db_now())


class EventRow(Base):
    """An event of a job, numbered from 1."""

    __tablename__ = "events"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    data: Mapped[Json]
    created_at: Mapped[float] = mapped_column(default=db_now())


class ArtifactRow(Base):
    """The artifact of a job."""

    __tablename__ = "artifacts"

    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), unique=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    name: Mapped[str]
    manifest: Mapped[Json]
    report: Mapped[Json]
    created_at: Mapped[float] = mapped_column(default=db_now())
    envelope: Mapped[str | None]


class DraftRow(Base):
    """What a job offers until it has an artifact."""

    __tablename__ = "drafts"
    __table_args__ = (Index(None, "created_at"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    name: Mapped[str]
    tasks: Mapped[int]
    covered: Mapped[int]
    created_at: Mapped[float] = mapped_column(default=db_now())
    envelope: Mapped[str | None]


class NetworkTimingRow(Base):
    """A network that a search compiled with its kernels so far, to be timed."""

    __tablename__ = "network_timings"
    __table_args__ = (Index(None, "sha256"), Index(None, "inputs_sha256"))

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # No foreign keys: the files go when the network was timed, or its job has ended.
    sha256: Mapped[str]
    inputs_sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    name: Mapped[str]
    tasks: Mapped[int]
    covered: Mapped[int]
    began_sec: Mapped[float]
    costs: Mapped[Json]
    expected_sec: Mapped[float]
    tries: Mapped[int] = mapped_column(default=0, server_default="0")
    not_before: Mapped[float] = mapped_column(default=0.0, server_default="0")
    error: Mapped[Json | None]
    latency_sec: Mapped[float | None]
    low_sec: Mapped[float | None]
    high_sec: Mapped[float | None]
    quiet: Mapped[bool | None]
    device_id: Mapped[str | None]
    device: Mapped[str | None]
    tuned_sec: Mapped[float | None]
    spent_sec: Mapped[float] = mapped_column(default=0.0, server_default="0")
    created_at: Mapped[float] = mapped_column(default=db_now())
    timed_at: Mapped[float | None]
    envelope: Mapped[str | None]


class TrialRow(Base):
    """A trial: a config of a task, its outcome and cost."""

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
        # Together with the index above it finds all trials of a job's task, which a tuner reads before every round.
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
