"""What webhook senders delivered, and events for them to deliver."""

from __future__ import annotations

from functools import partial
from typing import Any

from waiting import wait_until as wait_for

from tunefarm_app.webhooks.sender import Patience
from tunefarm_db.values import ClaimedDelivery, Delivery, Job, Webhook

wait_until = partial(wait_for, within_sec=90.0)
SOON = Patience(first_sec=0.01, most_sec=0.02)


def deliveries(farm: Any, webhook: Webhook) -> list[Delivery]:
    with farm.services.uow.read() as repos:
        return list(repos.deliveries.page(webhook.id, limit=500).items)[::-1]


def wait_for_end(farm: Any, webhook: Webhook) -> list[Delivery]:
    wait_until(
        lambda: all(delivery.finished_at for delivery in deliveries(farm, webhook)),
        lambda: f"deliveries: {deliveries(farm, webhook)}",
    )
    return deliveries(farm, webhook)


def claim(farm: Any, lease_sec: float = 60.0) -> ClaimedDelivery | None:
    with farm.services.uow.read() as repos:
        (first,) = repos.deliveries.due(1)
    with farm.services.uow.write() as repos:
        claimed: ClaimedDelivery | None = repos.deliveries.claim(first, lease_sec)
    return claimed


def happen(farm: Any, job: Job, count: int = 1) -> None:
    for number in range(count):
        with farm.services.uow.write() as repos:
            repos.events.add(job.id, "round", {"number": number})
