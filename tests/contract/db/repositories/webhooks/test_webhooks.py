"""Webhooks and their deliveries: stored with the event, claimed once, in order within a job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from tunefarm_db.acting import Acting, act_as
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import ClaimedDelivery, DeliveryState, Webhook, WebhookHealth
from tunefarm_tuning.core.errors import ConflictError, NotFoundError

URL = "https://hooks.example.org/"


def add(uow: UnitOfWork, **changes: Any) -> Webhook:
    with uow.write() as repos:
        return repos.webhooks.add(
            **{"url": URL, "kinds": [], "job_id": None, "secret": "whsec_eA==", **changes}
        )


def test_a_webhook_has_the_owner_that_registered_it(uow: UnitOfWork) -> None:
    with act_as(Acting(key_id="k2", owner="k1")):
        owned = add(uow)
    with uow.read() as repos:
        assert repos.webhooks.get(owned.id).owner == "k1"
    assert add(uow).owner is None


def happen(uow: UnitOfWork, job_id: str, kind: str = "round", **data: Any) -> None:
    with uow.write() as repos:
        repos.events.add(job_id, kind, data)


def claim_all(uow: UnitOfWork) -> list[ClaimedDelivery]:
    claimed = []
    while True:
        with uow.read() as repos:
            due = repos.deliveries.due(100)
        if not due:
            return [delivery for delivery in claimed if delivery is not None]
        for delivery_id in due:
            with uow.write() as repos:
                claimed.append(repos.deliveries.claim(delivery_id, 60.0))


def deliver(uow: UnitOfWork, claimed: ClaimedDelivery, **changes: Any) -> bool:
    done = {"state": DeliveryState.DELIVERED, "status": 200, "latency_sec": 0.1, "error": ""}
    with uow.write() as repos:
        return repos.deliveries.settle(claimed.delivery, **{**done, **changes})


def test_who_wants_what(uow: UnitOfWork, seed: Any) -> None:
    job, other = seed.job(seed=1), seed.job(seed=2)
    everything = add(uow)
    failures = add(uow, kinds=["failed", "device-trouble"])
    of_other = add(uow, job_id=other.id)
    happen(uow, job.id)
    happen(uow, job.id, "finished", state="succeeded")
    happen(uow, job.id, "finished", state="failed")
    happen(uow, other.id, "device-trouble")
    with uow.read() as repos:
        sent = {
            webhook.id: [
                (delivery.job_id, delivery.seq) for delivery in repos.deliveries.page(webhook.id).items
            ][::-1]
            for webhook in repos.webhooks.list()
        }
    assert sent == {
        everything.id: [(job.id, 1), (job.id, 2), (job.id, 3), (other.id, 1)],
        failures.id: [(job.id, 3), (other.id, 1)],
        of_other.id: [(other.id, 1)],
    }
    with pytest.raises(ConflictError):
        add(uow, job_id="job_none")


def test_in_order_within_a_job(uow: UnitOfWork, seed: Any) -> None:
    job, other = seed.job(seed=1), seed.job(seed=2)
    add(uow)
    for happening in (job, job, other):
        happen(uow, happening.id, number=happening.seed)
    first, of_other = claim_all(uow)
    assert [(turn.delivery.job_id, turn.delivery.seq) for turn in (first, of_other)] == [
        (job.id, 1),
        (other.id, 1),
    ]
    assert (first.url, first.secret, first.data) == (URL, "whsec_eA==", {"number": 1})
    assert claim_all(uow) == []
    # Not sent yet: the second one waits on.
    assert deliver(uow, first, state=DeliveryState.PENDING, status=500, error="no", retry_after_sec=3600.0)
    assert claim_all(uow) == []
    with uow.read() as repos:
        waiting = repos.deliveries.get(first.delivery.webhook_id, first.delivery.id)
    assert (waiting.attempts, waiting.status, waiting.error, waiting.lease_until) == (1, 500, "no", None)
    assert deliver(uow, first, state=DeliveryState.FAILED)
    assert not deliver(uow, first)
    (second,) = claim_all(uow)
    assert second.delivery.seq == 2


def test_what_was_taken_over_is_lost(uow: UnitOfWork, seed: Any, expire: Any) -> None:
    add(uow)
    happen(uow, seed.job().id)
    (first,) = claim_all(uow)
    expire("webhook_deliveries", first.delivery.id)
    (again,) = claim_all(uow)
    assert (again.delivery.id, again.delivery.attempts) == (first.delivery.id, 2)
    assert not deliver(uow, first)
    assert deliver(uow, again)


def test_many_take_and_each_is_taken_once(uow: UnitOfWork, seed: Any) -> None:
    add(uow)
    add(uow)
    jobs = [seed.job(seed=number) for number in range(5)]
    for job in jobs:
        for _ in range(4):
            happen(uow, job.id)
    taken: list[tuple[str, str | None, int | None]] = []

    def work(_: int) -> None:
        while claimed := claim_all(uow):
            for turn in claimed:
                taken.append((turn.delivery.webhook_id, turn.delivery.job_id, turn.delivery.seq))
                assert deliver(uow, turn)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    work(0)  # whoever found nothing has ended, while others were at the events before
    assert len(taken) == len(set(taken)) == 40
    for webhook_id, job_id in {turn[:2] for turn in taken}:
        assert [seq for w, j, seq in taken if (w, j) == (webhook_id, job_id)] == [1, 2, 3, 4]


def test_busy_webhooks_are_left_out(uow: UnitOfWork, seed: Any) -> None:
    busy, free = add(uow), add(uow)
    happen(uow, seed.job().id)
    with uow.read() as repos:
        (due,) = repos.deliveries.due(10, busy=[busy.id])
        assert repos.deliveries.get(free.id, due).kind == "round"


def test_disabled_enabled_deleted(uow: UnitOfWork, seed: Any) -> None:
    webhook, job = add(uow), seed.job()
    happen(uow, job.id)
    with uow.write() as repos:
        assert repos.webhooks.failed(webhook.id).failures == 1
        failing = repos.webhooks.failed(webhook.id)
        assert failing.failures == 2
        assert repos.webhooks.disable(webhook.id, "too much")
        assert not repos.webhooks.disable(webhook.id, "again")
    happen(uow, job.id)
    assert claim_all(uow) == []
    with uow.write() as repos:
        (given_up,) = repos.deliveries.page(webhook.id).items
        assert (given_up.state, given_up.finished_at is not None) == (DeliveryState.FAILED, True)
        assert repos.webhooks.get(webhook.id).disabled_reason == "too much"
        enabled = repos.webhooks.enable(webhook.id)
        assert (enabled.failures, enabled.failing_since, enabled.disabled_at) == (0, None, None)
        repos.deliveries.queue_test(webhook.id)
    (test,) = claim_all(uow)
    assert (test.delivery.kind, test.delivery.job_id, test.data) == ("test", None, {})
    with uow.write() as repos:
        repos.webhooks.delete(webhook.id)
        assert repos.deliveries.page(webhook.id).items == ()
        with pytest.raises(NotFoundError):
            repos.webhooks.delete(webhook.id)
        assert repos.webhooks.failed(webhook.id) is None
    assert not deliver(uow, test)


def test_pages_and_what_is_forgotten(uow: UnitOfWork, seed: Any) -> None:
    webhook, job = add(uow), seed.job()
    for _ in range(5):
        happen(uow, job.id)
    for _ in range(3):
        (claimed,) = claim_all(uow)
        deliver(uow, claimed)
    with uow.write() as repos:
        page = repos.deliveries.page(webhook.id, limit=2)
        assert [delivery.seq for delivery in page.items] == [5, 4]
        page = repos.deliveries.page(webhook.id, limit=3, cursor=page.next_cursor)
        assert ([delivery.seq for delivery in page.items], page.next_cursor) == ([3, 2, 1], None)
        delivered = repos.deliveries.page(webhook.id, state=DeliveryState.DELIVERED).items
        assert [delivery.seq for delivery in delivered] == [3, 2, 1]
        assert repos.deliveries.forget(3600.0, limit=100) == 0
        assert repos.deliveries.forget(-1.0, limit=2) == 2
        assert repos.deliveries.forget(-1.0, limit=2) == 1
        repos.deliveries.queue_test("whk_gone")
        assert repos.deliveries.forget(3600.0, limit=2) == 1
        assert len(repos.deliveries.page(webhook.id).items) == 2


def test_health(uow: UnitOfWork, seed: Any) -> None:
    """Only deliveries that could be sent now count as overdue."""
    job = seed.job()
    webhook, idle = add(uow), add(uow, kinds=["paused"])
    for number in range(3):
        happen(uow, job.id, number=number)
    with uow.engine.begin() as connection:
        connection.execute(
            text("UPDATE webhook_deliveries SET not_before = not_before - 500, created_at = 1.0")
        )
        connection.execute(text("UPDATE webhook_deliveries SET not_before = 1.0 WHERE seq > 1"))

    def standing() -> tuple[WebhookHealth, ...]:
        with uow.read() as repos:
            return repos.deliveries.health()

    first, second = standing()
    assert (first.id, first.pending, first.state, first.failing_sec) == (webhook.id, 3, "good", None)
    assert 500 <= first.overdue_sec < 5000
    assert first.oldest_sec > 1e9
    assert (second.id, second.pending, second.oldest_sec, second.overdue_sec) == (idle.id, 0, 0.0, 0.0)
    (claimed, *_) = claim_all(uow)
    assert standing()[0].overdue_sec == 0.0, "it is being told"
    assert deliver(uow, claimed)
    assert standing()[0].pending == 2
    with uow.write() as repos:
        repos.webhooks.failed(webhook.id)
    assert standing()[0].state == "failing"
    with uow.read() as repos:
        assert repos.counters.all()[Counter.DELIVERIES] == {"delivered": 1.0}
