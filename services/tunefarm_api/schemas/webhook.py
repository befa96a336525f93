"""Schemas of webhooks and their deliveries."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tunefarm_api.schemas.base import Input, Output
from tunefarm_app.webhooks.address import MAX_URL_LENGTH
from tunefarm_app.webhooks.register import KINDS
from tunefarm_db.values import DeliveryState


class WebhookCreate(Input):
    """A request to register a webhook."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"url": "https://ci.example.org/tunefarm", "kinds": ["finished", "device-trouble"]}]
        }
    )

    url: str = Field(
        min_length=1,
        max_length=MAX_URL_LENGTH,
        description="URL that events are posted to: `https://…` or `http://…`. Its address must be public, unless the "
        "server allows others.",
    )
    kinds: list[str] = Field(
        default_factory=list,
        max_length=50,
        description=f"Kinds of event to send; all if empty. Of {', '.join(f'`{kind}`' for kind in KINDS)}.",
    )
    job_id: str | None = Field(
        default=None, max_length=100, description="Job whose events are sent; null for all jobs."
    )


class Webhook(Output):
    """A webhook, without its secret."""

    id: str = Field(description="Identifier.")
    url: str = Field(description="URL that events are posted to.")
    kinds: list[str] = Field(description="Kinds of event to send; all if empty.")
    job_id: str | None = Field(description="Job whose events are sent; null for all jobs.")
    failures: int = Field(description="Number of failed attempts since the last success.")
    failing_since: float | None = Field(description="Time of the first of these, Unix seconds; null if none.")
    disabled_at: float | None = Field(description="Time of disabling, Unix seconds; null if enabled.")
    disabled_reason: str = Field(description="Reason of disabling; empty if enabled.")
    created_at: float = Field(description="Time of registration, Unix seconds.")


class NewWebhook(Webhook):
    """A new webhook."""

    secret: str = Field(
        description="Secret that signs the deliveries (`whsec_…`, Standard Webhooks). Shown only now."
    )


class WebhookDelivery(Output):
    """A delivery of an event to a webhook."""

    id: str = Field(description="Identifier; sent as the header `webhook-id`, equal for all attempts.")
    job_id: str | None = Field(description="Job of the event; null for a test.")
    seq: int | None = Field(description="Number of the event within the job; null for a test.")
    kind: str = Field(description="Kind of the event, or `test`.")
    state: DeliveryState = Field(
        description="`pending` (waiting or being sent), `delivered` or `failed` (given up)."
    )
    attempts: int = Field(description="Number of attempts.")
    not_before: float = Field(description="Earliest time of the next attempt while pending, Unix seconds.")
    status: int | None = Field(description="HTTP status of the last response; null if none.")
    latency_sec: float | None = Field(description="Seconds of the last attempt; null if none.")
    error: str = Field(description="Error of the last attempt; empty if it succeeded.")
    created_at: float = Field(description="Time of the event, Unix seconds.")
    finished_at: float | None = Field(
        description="Time when it was delivered or given up, Unix seconds; null before."
    )
