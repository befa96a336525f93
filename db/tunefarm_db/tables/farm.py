"""Tables of the farm as a whole: API keys and counters."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from tunefarm_db.tables.base import Base
from tunefarm_db.tables.columns import db_now


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
