"""Schemas of webhooks and their deliveries."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Input, Output
from tunefarm_app.webhooks.address import MAX_URL_LENGTH
from tunefarm_app.webhooks.register import KINDS
from tunefarm_db.values import DeliveryState


class WebhookCreate(Input):
    """A request for a webhook."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"url": "https://ci.example.org/tunefarm", "kinds": ["finished", "device-trouble"]}]
        }
    )

    url: str = Field(
        min_length=1,
        max_length=MAX_URL_LENGTH,
        description="Where it is told, by POST: `https://…` or `http://…`. It must lead to a public address, unless the "
        "server allows others.",
    )
    kinds: list[str] = Field(
        default_factory=list,
        max_length=50,
        description=f"What it is told of; everything where it is empty. Of {', '.join(f'`{kind}`' for kind in KINDS)}.",
    )
    job_id: str | None = Field(
        default=None, max_length=100, description="The one job that it is told of; null for all."
    )


class Webhook(Output):
    """A webhook, without its secret."""

    id: str = Field(description="Its identity.")
    url: str = Field(description="Where it is told.")
    kinds: list[str] = Field(description="What it is told of; everything where it is empty.")
    job_id: str | None = Field(description="The one job that it is told of; null for all.")
    failures: int = Field(description="Attempts that failed since the last one that went well.")
    failing_since: float | None = Field(
        description="When the first of them was, Unix seconds; null where none was."
    )
    disabled_at: float | None = Field(
        description="When it was disabled, Unix seconds; null while it is good."
    )
    disabled_reason: str = Field(description="Why it was disabled; empty while it is good.")
    created_at: float = Field(description="When it was registered, Unix seconds.")


class NewWebhook(Webhook):
    """A webhook that was just registered."""

    secret: str = Field(
        description="What deliveries are signed with (`whsec_…`, Standard Webhooks). It is shown this once."
    )


class WebhookDelivery(Output):
    """One event for one webhook, and how it went."""

    id: str = Field(
        description="Its identity; the receiver gets it as `webhook-id`, the same at each attempt."
    )
    job_id: str | None = Field(description="The event's job; null for a test.")
    seq: int | None = Field(description="The event's number within the job; null for a test.")
    kind: str = Field(description="The event's kind, or `test`.")
    state: DeliveryState = Field(
        description="`pending` (waits, or is sent now), `delivered`, `failed` (given up)."
    )
    attempts: int = Field(description="How often it was sent.")
    not_before: float = Field(description="While it is pending: not sent before this time, Unix seconds.")
    status: int | None = Field(description="HTTP status of the last answer; null where there was none.")
    latency_sec: float | None = Field(
        description="How long the last attempt took; null where there was none."
    )
    error: str = Field(description="Why the last attempt failed; empty where it did not.")
    created_at: float = Field(description="When it happened, Unix seconds.")
    finished_at: float | None = Field(
        description="When it was delivered or given up, Unix seconds; null before."
    )
