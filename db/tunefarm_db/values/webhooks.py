"""What the repositories hand out of webhooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

BY_A_PERSON = "disabled by a person"
"""The reason of a disabled webhook that nobody need look into."""

WEBHOOK_STATES = ("good", "failing", "disabled", "off")


class DeliveryState(StrEnum):
    """Where a delivery stands; the last two are final."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"  # given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A URL that is told of what happens to jobs.

    Attributes:
        kinds: What it is told of; empty for everything. See `tunefarm_db.repositories.webhooks.webhooks.names_of`.
        job_id: The one job that it is told of; None for all.
        secret: What its deliveries are signed with. It is kept as it is: a hash could sign nothing.
        failures: Attempts that failed since the last one that went well.
        failing_since: When the first of them was.
        disabled_at: It is told of nothing from then on; None while it is good.
        disabled_reason: Why; empty while it is good.
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
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one webhook.

    Attributes:
        id: The receiver sees it too, and knows by it what it got twice.
        job_id: None for a test.
        seq: The event's number within the job; None for a test.
        attempts: How often it was sent, the one under way included; a write counts only under the present number.
        not_before: It is not sent again before this time.
        lease_until: Somebody is sending it until then; None where nobody is.
        status: HTTP status of the last answer; None where there was none.
        latency_sec: How long the last attempt took.
        error: Why the last attempt failed; empty where it did not.
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
class WebhookStanding:
    """How a webhook does, as far as metrics and checks tell. Not where it leads: fewer may know that.

    Attributes:
        pending: Deliveries that wait, or are under way.
        oldest_sec: Age of the oldest of them; 0 where there is none.
        overdue_sec: How long the one that is due the longest has been due; 0 where none is, or one is under way.
        failing_sec: For how long it has failed; None where the last attempt went well.
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
    """What is another one as soon as a page about the webhook would show something else.

    Attributes:
        newest: Id of its newest delivery.
        attempts: How many there ever were, of all webhooks.
    """

    id: str
    failures: int
    disabled_at: float | None
    newest: str | None
    attempts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A delivery to be sent, with all that it takes.

    Attributes:
        data: The event's; empty for a test.
    """

    delivery: Delivery
    url: str
    secret: str = field(repr=False)
    data: dict[str, Any]
