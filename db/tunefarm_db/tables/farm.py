"""Tables of the farm as a whole: API keys, counters, the audit log and reserved bytes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from tunefarm_db.tables.base import Base
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import AuditAction, Json


class CounterRow(Base):
    """A total that only grows, in slots that different writers add to."""

    __tablename__ = "counters"

    name: Mapped[str] = mapped_column(primary_key=True)
    label: Mapped[str] = mapped_column(primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[float]


class ApiKeyRow(Base):
    """An API key; only the hash of its secret is stored."""

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
    account: Mapped[str | None]
    limits: Mapped[Json] = mapped_column(default=dict, server_default=text("'{}'"))
    rotated_at: Mapped[float | None]
    unrotated_end: Mapped[float | None]


class ReservedBytesRow(Base):
    """Bytes that a running upload may still store."""

    __tablename__ = "reserved_bytes"

    id: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str] = mapped_column(index=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[float]


class AuditInboxRow(Base):
    """An entry of the audit log that is not chained yet: written in the transaction that it tells of."""

    __tablename__ = "audit_inbox"

    id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(default=db_now())
    actor: Mapped[str | None]
    via: Mapped[str]
    address: Mapped[str]
    action: Mapped[AuditAction]
    subject: Mapped[str | None]
    details: Mapped[Json]


class AuditLogRow(Base):
    """An entry of the audit log. Triggers of the database refuse to change or delete it."""

    __tablename__ = "audit_log"
    __table_args__ = (
        Index(None, "actor", "seq"),
        Index(None, "action", "seq"),
        Index(None, "subject", "seq"),
    )

    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[float]
    actor: Mapped[str | None]
    via: Mapped[str]
    address: Mapped[str]
    action: Mapped[AuditAction]
    subject: Mapped[str | None]
    details: Mapped[Json]
    hash: Mapped[str]
