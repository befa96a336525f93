"""Tables of workloads, their config spaces, records and kernel sources."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, false, text
from sqlalchemy.orm import Mapped, mapped_column

from tunefarm_db.tables.base import Base
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, SourceState


class WorkloadRow(Base):
    """The IR of a kernel, by its key and the toolchain."""

    __tablename__ = "workloads"

    key: Mapped[str] = mapped_column(primary_key=True)
    toolchain: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    flops: Mapped[float]
    args: Mapped[list[Any]]
    ir: Mapped[str]
    created_at: Mapped[float] = mapped_column(default=db_now())


class FindingRow(Base):
    """What a compile found out about a kernel or an alternative, for later compiles."""

    __tablename__ = "findings"
    __table_args__ = (Index(None, "created_at"),)

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[Json]
    created_at: Mapped[float] = mapped_column(default=db_now())


class SpaceRow(Base):
    """The config space of a workload on a target."""

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
    revision: Mapped[int] = mapped_column(default=0, server_default="0")
    created_at: Mapped[float] = mapped_column(default=db_now())


class RecordRow(Base):
    """A tuning record: a config of a workload and its measured cost."""

    __tablename__ = "records"
    __table_args__ = (
        # The first entry of this index for a workload is its best record.
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
        # Finds the newest records of a kind even if all newer ones are of other kinds.
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
        Index(
            "ix_records_imported",
            "owner",
            "size_bytes",
            sqlite_where=text("owner IS NOT NULL"),
            postgresql_where=text("owner IS NOT NULL"),
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
    certificate_sha256: Mapped[str | None]
    ticket_jti: Mapped[str | None]
    owner: Mapped[str | None]
    size_bytes: Mapped[int | None]
    created_at: Mapped[float] = mapped_column(default=db_now())


class SourceRow(Base):
    """The generated source code of a record's kernel."""

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
