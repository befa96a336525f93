"""Tables of models: uploads, blobs of the store, samples, and the tasks of a model."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from tunefarm_db.tables.base import Base
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import Json, ModelState, SampleState, UploadState


class BlobRow(Base):
    """A file in the blob store."""

    __tablename__ = "blobs"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    media_type: Mapped[str]
    created_at: Mapped[float] = mapped_column(default=db_now())


class ModelRow(Base):
    """An uploaded network with its bound shapes and values."""

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
        Index(
            "uq_models_name_version",
            "name",
            "version",
            unique=True,
            sqlite_where=text("state != 'deleted'"),
            postgresql_where=text("state != 'deleted'"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    version: Mapped[int] = mapped_column(default=1, server_default="1")
    # No foreign key: a deleted model remembers its hash when the blob is gone.
    sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    shapes: Mapped[Json]
    # The attributes of columns have a method of the column's name.
    values_: Mapped[Json] = mapped_column("values", server_default=text("'{}'"))
    shapes_key: Mapped[str]
    state: Mapped[ModelState]
    error: Mapped[Json | None]
    inputs: Mapped[list[Any]]
    outputs: Mapped[list[Any]]
    specialisations: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    operators: Mapped[list[Any]]
    opset: Mapped[int | None]
    num_params: Mapped[int | None] = mapped_column(BigInteger)
    parts: Mapped[list[Any] | None]
    revision: Mapped[int] = mapped_column(default=0, server_default="0")
    tags: Mapped[list[Any]] = mapped_column(default=list, server_default="[]")
    note: Mapped[str] = mapped_column(default="", server_default="")
    owner: Mapped[str | None] = mapped_column(index=True)
    created_at: Mapped[float] = mapped_column(default=db_now())
    updated_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())


class UploadRow(Base):
    """An upload in parts that is not complete yet."""

    __tablename__ = "uploads"
    __table_args__ = (Index(None, "api_key_id", "id"), Index(None, "expires_at"))

    id: Mapped[str] = mapped_column(primary_key=True)
    # No foreign keys: an upload is short-lived, and nothing refers to it.
    api_key_id: Mapped[str]
    name: Mapped[str]
    shapes: Mapped[Json]
    values_: Mapped[Json] = mapped_column("values", server_default=text("'{}'"))
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


class SampleFileRow(Base):
    """A user's file of samples for a model."""

    __tablename__ = "sample_files"
    __table_args__ = (
        UniqueConstraint("model_id", "sha256"),
        Index(None, "expires_at"),
        Index(None, "sha256"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"))
    name: Mapped[str]
    # No foreign key: a failed file remembers its hash when the blob is gone.
    sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[SampleState] = mapped_column(default=SampleState.CHECKING)
    error: Mapped[Json | None]
    sets: Mapped[int | None]
    used: Mapped[list[Any]] = mapped_column(default=list)
    owner: Mapped[str | None] = mapped_column(index=True)
    created_at: Mapped[float] = mapped_column(default=db_now())
    updated_at: Mapped[float] = mapped_column(default=db_now(), onupdate=db_now())
    expires_at: Mapped[float | None]


class QuantisedModelRow(Base):
    """A quantised form of a model, for one choice of samples and accuracy."""

    __tablename__ = "quantised_models"
    __table_args__ = (Index(None, "sha256"),)

    model_id: Mapped[str] = mapped_column(ForeignKey("models.id"), primary_key=True)
    terms: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("blobs.sha256"))
    quantisation: Mapped[Json]
    created_at: Mapped[float] = mapped_column(default=db_now())


class ModelTaskRow(Base):
    """A tuning task of a model, for a graph pipeline and a toolchain."""

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
    alternative: Mapped[Json | None]
    revision: Mapped[int] = mapped_column(default=0, server_default="0")
