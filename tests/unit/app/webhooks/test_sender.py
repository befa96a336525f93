"""Webhook senders with a real receiver and database: order, retries, and senders that die or race."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hook_deliveries import SOON, claim, deliveries, happen, wait_for_end, wait_until
from hook_receiver import Receiver, is_signed
from sqlalchemy import text

from tunefarm_app.webhooks.register import (
    create_webhook,
    enable_webhook,
    try_webhook,
)
from tunefarm_app.webhooks.request import Attempt, send
from tunefarm_app.webhooks.sender import Patience, settle
from tunefarm_db.values import Job
from tunefarm_tuning.core.errors import ConflictError, LeaseLostError, NotFoundError


def test_a_whole_job_is_told_in_order(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    before = len(farm.events(tuning_job.id))
    senders()
    farm.run_until_quiet()
    sent = wait_for_end(farm, webhook)
    kinds = farm.events(tuning_job.id)[before:]
    assert [delivery.kind for delivery in sent] == kinds
    assert [request.message["type"] for request in receiver.requests] == [f"job.{kind}" for kind in kinds]
    assert [request.seq for request in receiver.requests] == list(range(before + 1, before + 1 + len(kinds)))
    assert receiver.ids() == [delivery.id for delivery in sent]
    assert all(is_signed(request, webhook.secret) for request in receiver.requests)
    last = receiver.requests[-1]
    assert last.path == "/hook?farm=1"
    assert last.headers["content-type"] == "application/json"
    assert last.message["data"]["job_id"] == tuning_job.id
    assert last.message["data"]["event"]["state"] == "succeeded"
    for delivery in sent:
        assert (delivery.state, delivery.attempts, delivery.status, delivery.error) == (
            "delivered",
            1,
            200,
            "",
        )
        assert delivery.latency_sec is not None
    assert webhook.secret not in repr(webhook)


def test_only_what_was_asked_for(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    other = farm.submit(farm.ready_model(), trials=16)
    failed = create_webhook(farm.services, url=receiver.url, kinds=["failed"])
    cancelled = create_webhook(farm.services, url=receiver.url, kinds=["cancelled", "phase"])
    of_one = create_webhook(farm.services, url=receiver.url, job_id=other.id, kinds=["finished"])
    happen(farm, tuning_job)
    for job in (tuning_job, other):
        with farm.services.uow.write() as repos:
            repos.events.add(job.id, "finished", {"state": "cancelled"})
    assert deliveries(farm, failed) == []
    assert [delivery.job_id for delivery in deliveries(farm, cancelled)] == [tuning_job.id, other.id]
    assert [delivery.job_id for delivery in deliveries(farm, of_one)] == [other.id]


def test_no_event_no_delivery(farm: Any, tuning_job: Job, receiver: Receiver) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    with pytest.raises(NotFoundError), farm.services.uow.write() as repos:  # noqa: PT012
        repos.events.add(tuning_job.id, "round", {})
        repos.jobs.get("job_none")
    assert deliveries(farm, webhook) == []


def test_a_failed_attempt_is_made_again_and_later_events_wait(
    farm: Any, tuning_job: Job, receiver: Receiver, senders: Any
) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    receiver.answer = lambda _request: 500 if len(receiver.requests) <= 3 else 204
    happen(farm, tuning_job, 3)
    senders(2)
    first, second, third = wait_for_end(farm, webhook)
    assert receiver.ids() == [first.id] * 4 + [second.id, third.id]
    assert len({request.body for request in receiver.requests[:4]}) == 1
    assert (first.attempts, first.status, first.error) == (4, 204, "")
    with farm.services.uow.read() as repos:
        assert repos.webhooks.get(webhook.id).failures == 0


def test_two_senders_at_once_tell_each_event_once(
    farm: Any, tuning_job: Job, receiver: Receiver, senders: Any
) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    happen(farm, tuning_job, 30)
    senders(3)
    sent = wait_for_end(farm, webhook)
    assert receiver.ids() == [delivery.id for delivery in sent]
    assert len(sent) == 30


def test_killed_between_sending_and_writing_it_down(
    farm: Any, tuning_job: Job, receiver: Receiver, senders: Any
) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    happen(farm, tuning_job, 2)
    claimed = claim(farm)
    assert claimed is not None
    attempt = send(claimed, allow_private=True)
    assert attempt.status == 200
    # No other sender takes it, nor the job's next one, while the lease lasts.
    with farm.services.uow.read() as repos:
        assert repos.deliveries.due(10) == ()
    with farm.services.uow.engine.begin() as connection:
        connection.execute(text("UPDATE webhook_deliveries SET lease_until = 1.0 WHERE attempts = 1"))
    senders()
    first, second = wait_for_end(farm, webhook)
    assert receiver.ids() == [first.id, first.id, second.id]
    assert first.attempts == 2
    # It was not killed, only slow: what it writes now counts no more.
    with pytest.raises(LeaseLostError), farm.services.uow.write() as repos:
        settle(repos, claimed, Attempt(status=500, error="late", latency_sec=1.0), SOON)
    assert deliveries(farm, webhook)[0] == first
    with farm.services.uow.read() as repos:
        assert repos.webhooks.get(webhook.id).failures == 0


def test_given_up_after_some_time(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    receiver.answer = lambda request: 500 if request.seq == first_seq else 200
    happen(farm, tuning_job, 2)
    first_seq = deliveries(farm, webhook)[0].seq
    senders(patience=Patience(first_sec=0.01, give_up_sec=0.0))
    first, second = wait_for_end(farm, webhook)
    assert (first.state, first.attempts, first.status) == ("failed", 1, 500)
    assert (second.state, second.status) == ("delivered", 200)


def test_disabled_after_too_many_failures(
    farm: Any, tuning_job: Job, receiver: Receiver, senders: Any
) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    receiver.answer = lambda _request: 503
    happen(farm, tuning_job, 2)
    senders(patience=Patience(first_sec=0.01, most_sec=0.01, disable_after=4, disable_after_sec=0.0))
    sent = wait_for_end(farm, webhook)
    assert [(delivery.state, delivery.attempts) for delivery in sent] == [("failed", 4), ("failed", 0)]
    with farm.services.uow.read() as repos:
        disabled = repos.webhooks.get(webhook.id)
    assert disabled.disabled_at is not None
    assert "4 attempts in a row failed" in disabled.disabled_reason
    happen(farm, tuning_job)
    assert len(deliveries(farm, webhook)) == 2
    with pytest.raises(ConflictError):
        try_webhook(farm.services, webhook.id)
    receiver.answer = lambda _request: 200
    assert enable_webhook(farm.services, webhook.id).disabled_at is None
    happen(farm, tuning_job)
    assert wait_for_end(farm, webhook)[-1].state == "delivered"


def test_a_day_must_pass_before_a_webhook_is_disabled(farm: Any, receiver: Receiver) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    with farm.services.uow.write() as repos:
        for _ in range(50):
            repos.webhooks.failed(webhook.id)
        now, failing = repos.now(), repos.webhooks.get(webhook.id)
    assert not Patience().is_over(failing, now)
    assert Patience().is_over(failing, now + 86_401)
    waits = [Patience().wait_sec(attempts) for attempts in range(1, 2000)]
    assert 2.5 <= waits[0] <= 7.5
    assert max(waits) <= 5400
    assert min(waits[20:]) >= 1800


def test_receivers_that_never_answer_hold_nobody_up(farm: Any, receiver: Receiver, senders: Any) -> None:
    """Slow receivers take no sender from others, however many there are."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:  # accepts, and says nothing
        port = listener.getsockname()[1]
        slow = [create_webhook(farm.services, url=f"http://127.0.0.1:{port}/{number}") for number in range(9)]
        for webhook in slow * 3:
            try_webhook(farm.services, webhook.id)
        senders(side_by_side=2, timeout_sec=3600.0, slow_sec=0.1)
        wait_until(lambda: deliveries(farm, slow[0])[0].attempts == 1, "the first of the slow ones")
        quick = create_webhook(farm.services, url=receiver.url)
        for _ in range(3):
            try_webhook(farm.services, quick.id)
        assert {delivery.state for delivery in wait_for_end(farm, quick)} == {"delivered"}
        # Each of them has its turn all the same, and whoever is slow gets one request at a time.
        wait_until(
            lambda: all(any(delivery.attempts for delivery in deliveries(farm, webhook)) for webhook in slow),
            "a turn for each of the slow ones",
        )
        assert max(sum(delivery.attempts for delivery in deliveries(farm, webhook)) for webhook in slow) <= 2


def test_one_webhook_with_much_to_be_told_leaves_room(farm: Any, receiver: Receiver) -> None:
    much = create_webhook(farm.services, url=receiver.url)
    for _ in range(30):
        try_webhook(farm.services, much.id)
    little = create_webhook(farm.services, url=receiver.url)
    last = try_webhook(farm.services, little.id)
    with farm.services.uow.read() as repos:
        due = repos.deliveries.due(8)
        assert due == (deliveries(farm, much)[0].id, last.id)
        assert repos.deliveries.due(8, busy=[much.id]) == (last.id,)
        assert repos.deliveries.due(8, only=[much.id]) == due[:1]
        assert repos.deliveries.due(8, only=[]) == ()
