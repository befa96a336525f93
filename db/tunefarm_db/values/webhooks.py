"""Values of webhooks and their deliveries."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

BY_A_PERSON = "disabled by a person"
"""The reason if a person disabled the webhook, and not the farm after failures."""


WEBHOOK_STATES = ("good", "failing", "disabled", "off")


class DeliveryState(StrEnum):
    """State of a delivery; the last two are final."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"  # no further attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A URL that events of jobs are sent to.

    Attributes:
        kinds: Events that it subscribed to; empty for all. See `tunefarm_db.repositories.webhooks.webhooks.names_of`.
        job_id: The job whose events it gets; None for all jobs.
        secret: Signs its deliveries. It is stored in clear: a hash could not sign.
        failures: Failed attempts since the last success.
        failing_since: Time of the first of them.
        disabled_at: Time of disabling; None while it is enabled.
        disabled_reason: Why it was disabled; empty while it is enabled.
        owner: The API key that registered it, or the first of those that it was rotated to; None for one of before.
    """

    id: str
    url: str
    kinds: list[str]
    job_id: str | None
    secret: str = field(repr=False)
    failures: int
    failing_since: float | None
    disabled_at: float | None
    disabled_reason: str
    owner: str | None
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one webhook.

    Attributes:
        id: The receiver gets it too, and tells repeated deliveries by it.
        job_id: None for a test.
        seq: The event's number within the job; None for a test.
        attempts: How often it was sent, a running attempt included; a result counts only under the present number.
        not_before: It is not sent again before this time.
        lease_until: A process is sending it until then; None if none is.
        status: HTTP status of the last answer; None if there was none.
        latency_sec: How long the last attempt took.
        error: Why the last attempt failed; empty if it succeeded.
    """

    id: str
    webhook_id: str
    job_id: str | None
    seq: int | None
    kind: str
    state: DeliveryState
    attempts: int
    not_before: float
    lease_until: float | None
    status: int | None
    latency_sec: float | None
    error: str
    created_at: float
    finished_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookHealth:
    """The health of a webhook, for metrics and checks. Without its URL, which fewer people may see.

    Attributes:
        pending: Deliveries that wait or are being sent.
        oldest_sec: Age of the oldest pending delivery; 0 if there is none.
        overdue_sec: How long the longest due delivery has been due; 0 if none is due, or one is being sent.
        failing_sec: For how long it has failed; None if the last attempt succeeded.
    """

    id: str
    failures: int
    failing_sec: float | None
    disabled_reason: str
    pending: int
    oldest_sec: float
    overdue_sec: float

    @property
    def state(self) -> str:
        """`good`, `failing`, `disabled` (by the farm), or `off` (by a person)."""
        if self.disabled_reason:
            return "off" if self.disabled_reason == BY_A_PERSON else "disabled"
        return "failing" if self.failures else "good"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookHead:
    """A text that changes whenever a page about the webhook changes.

    Attributes:
        newest: Id of its newest delivery.
        attempts: Total number of attempts of all webhooks.
    """

    id: str
    failures: int
    disabled_at: float | None
    newest: str | None
    attempts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A delivery to send, with its URL, secret and data.

    Attributes:
        data: The event's; empty for a test.
    """

    delivery: Delivery
    url: str
    secret: str = field(repr=False)
    data: dict[str, Any]
