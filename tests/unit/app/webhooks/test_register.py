"""Webhooks are registered, tried, disabled and deleted, also while they are delivered to."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hook_deliveries import deliveries, happen, wait_for_end, wait_until
from hook_receiver import Receiver, is_signed
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs

from tunefarm_app.operations.reconcile import Reconciler
from tunefarm_app.webhooks.register import (
    MAX_PER_OWNER,
    MAX_WAITING_TESTS,
    create_webhook,
    delete_webhook,
    disable_webhook,
    try_webhook,
)
from tunefarm_db.acting import Acting, act_as
from tunefarm_db.values import Job
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, NotFoundError


def test_gone_is_gone(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    receiver.answer = lambda _request: 410
    happen(farm, tuning_job, 2)
    senders()
    wait_for_end(farm, webhook)
    assert len(receiver.requests) == 1
    with farm.services.uow.read() as repos:
        assert "410" in repos.webhooks.get(webhook.id).disabled_reason
    told = [delivery.error for delivery in deliveries(farm, webhook)]
    assert "the receiver answered 410" in told, (
        "the delivery that met the 410 said that the webhook is disabled"
    )
    assert "the webhook is disabled" in told, "the other one was not sent"


def test_deleted_while_it_is_told(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def answer(_request: Any) -> int:
        arrived.set()
        assert go_on.wait(90)
        return 500

    receiver.answer = answer
    webhook = create_webhook(farm.services, url=receiver.url)
    happen(farm, tuning_job, 2)
    with capture_logs() as log:
        senders()
        assert arrived.wait(90)
        delete_webhook(farm.services, webhook.id)
        go_on.set()
        wait_until(
            lambda: [entry for entry in log if entry["event"] == "delivery came too late"],
            "the end of the attempt",
        )
    assert deliveries(farm, webhook) == []
    assert len(receiver.requests) == 1
    assert [entry for entry in log if entry["log_level"] == "error"] == []


def test_disabled_by_a_person_while_it_is_told(farm: Any, receiver: Receiver, senders: Any) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def answer(_request: Any) -> int:
        arrived.set()
        assert go_on.wait(90)
        return 200

    receiver.answer = answer
    webhook = create_webhook(farm.services, url=receiver.url)
    first, second = (try_webhook(farm.services, webhook.id) for _ in range(2))
    senders(side_by_side_each=1)
    assert arrived.wait(90)
    disabled = disable_webhook(farm.services, webhook.id)
    assert (disabled.disabled_at is not None, disabled.disabled_reason) == (True, "disabled by a person")
    assert disable_webhook(farm.services, webhook.id) == disabled
    go_on.set()
    sent = wait_for_end(farm, webhook)
    assert [(delivery.id, delivery.state) for delivery in sent] == [
        (first.id, "failed"),
        (second.id, "failed"),
    ]
    assert len(receiver.requests) == 1
    with pytest.raises(NotFoundError):
        disable_webhook(farm.services, "whk_none")


def test_its_secret_is_in_no_message_of_the_database(farm: Any) -> None:
    with pytest.raises(DBAPIError) as caught, farm.services.uow.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO webhooks (id, secret) VALUES ('x', :secret)"), {"secret": "whsec_eA=="}
        )
    assert "webhooks" in str(caught.value)
    assert "whsec_eA==" not in str(caught.value)


def test_deleted_while_something_waits(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    happen(farm, tuning_job)
    delete_webhook(farm.services, webhook.id)
    # An event that was being written at that time leaves one behind.
    with farm.services.uow.write() as repos:
        repos.deliveries.queue_test(webhook.id)
        assert repos.deliveries.due(10) == ()
    Reconciler(farm.services).tick()
    assert deliveries(farm, webhook) == []
    assert receiver.requests == []


def test_the_log_is_kept_for_some_days(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    happen(farm, tuning_job, 3)
    senders()
    old = wait_for_end(farm, webhook)[0]
    with farm.services.uow.engine.begin() as connection:
        statement = text("UPDATE webhook_deliveries SET finished_at = finished_at - 8 * 86400 WHERE id = :id")
        connection.execute(statement, {"id": old.id})
    Reconciler(farm.services).tick()
    assert [delivery.seq for delivery in deliveries(farm, webhook)] == [old.seq + 1, old.seq + 2]


def test_a_test(farm: Any, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url, kinds=["finished"])
    delivery = try_webhook(farm.services, webhook.id)
    senders()
    (sent,) = wait_for_end(farm, webhook)
    assert (sent.id, sent.kind, sent.status) == (delivery.id, "test", 200)
    assert receiver.requests[0].message["type"] == "test"
    assert is_signed(receiver.requests[0], webhook.secret)


def test_what_cannot_be_registered(farm: Any, receiver: Receiver) -> None:
    with pytest.raises(InvalidInputError) as caught:
        create_webhook(farm.services, url=receiver.url, kinds=["finish"])
    assert caught.value.code == "unknown-kind"
    strict = farm.with_settings(webhook_allow_private=False)
    with pytest.raises(InvalidInputError) as caught:
        create_webhook(strict.services, url=receiver.url)
    assert caught.value.code == "webhook-address"
    with farm.services.uow.write() as repos:
        for _ in range(100):
            repos.webhooks.add(url=receiver.url, kinds=[], job_id=None, secret="whsec_")
    with pytest.raises(ConflictError) as full:
        create_webhook(farm.services, url=receiver.url)
    assert full.value.code == "too-many-webhooks"


def test_a_flood_of_test_events_ends(farm: Any) -> None:
    """A receiver that never answers keeps each of them for a day, in every look for what is due."""
    webhook, other = (create_webhook(farm.services, url="http://127.0.0.1:9/") for _ in range(2))
    for _ in range(MAX_WAITING_TESTS):
        try_webhook(farm.services, webhook.id)
    with pytest.raises(ConflictError) as full:
        try_webhook(farm.services, webhook.id)
    assert full.value.code == "too-many-tests"
    assert len(deliveries(farm, webhook)) == MAX_WAITING_TESTS
    try_webhook(farm.services, other.id)


def test_one_key_does_not_take_all_webhooks(farm: Any) -> None:
    greedy, other = (Acting(via="api", key_id=name, owner=name) for name in ("key_1", "key_2"))
    with act_as(greedy):
        for _ in range(MAX_PER_OWNER):
            create_webhook(farm.services, url="http://127.0.0.1:9/")
        with pytest.raises(ConflictError) as full:
            create_webhook(farm.services, url="http://127.0.0.1:9/")
    assert full.value.code == "too-many-webhooks"
    with act_as(other):
        create_webhook(farm.services, url="http://127.0.0.1:9/")
