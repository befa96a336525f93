"""Tables of webhooks and their deliveries."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from tunefarm_db.tables.base import Base
from tunefarm_db.tables.columns import db_now
from tunefarm_db.values import DeliveryState


class WebhookRow(Base):
    """A webhook: a URL, its secret, and the kinds of events that it receives."""

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
    owner: Mapped[str | None]
    created_at: Mapped[float] = mapped_column(default=db_now())


class WebhookDeliveryRow(Base):
    """The delivery of an event to a webhook, and its attempts."""

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
    # No foreign key: a job's event must not fail because the webhook is deleted at the same time.
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
