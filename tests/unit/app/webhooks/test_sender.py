"""Webhook senders with a real receiver and database: they die, race and meet hostile answers."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hook_receiver import Receiver, hook_receiver, is_signed
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs
from waiting import wait_until as wait_for

from tunefarm_app.operations.reconcile import Reconciler
from tunefarm_app.webhooks.register import (
    create_webhook,
    delete_webhook,
    disable_webhook,
    enable_webhook,
    try_webhook,
)
from tunefarm_app.webhooks.request import Attempt, send
from tunefarm_app.webhooks.sender import Patience, WebhookSender, settle
from tunefarm_db.values import ClaimedDelivery, Delivery, Job, Webhook
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, LeaseLostError, NotFoundError

wait_until = partial(wait_for, within_sec=90.0)
SOON = Patience(first_sec=0.01, most_sec=0.02)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with hook_receiver() as receiver:
        yield receiver


@pytest.fixture
def farm(farm: Any) -> Any:
    return farm.with_settings(webhook_allow_private=True)


@pytest.fixture
def senders(farm: Any) -> Iterator[Any]:
    started: list[WebhookSender] = []

    def start(count: int = 1, **options: Any) -> None:
        for _ in range(count):
            sender = WebhookSender(farm.services, **{"every_sec": 0.01, "patience": SOON, **options})
            started.append(sender)
            sender.start()

    yield start
    for sender in started:
        sender.stop()


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


def test_redirects_are_not_followed(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    with hook_receiver() as elsewhere:
        receiver.answer, receiver.location = (lambda _request: 307), elsewhere.url
        happen(farm, tuning_job)
        senders()
        wait_until(lambda: len(receiver.requests) > 1, "a second attempt")
        assert elsewhere.requests == []
    assert "redirects are not followed" in deliveries(farm, webhook)[0].error


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


def test_gone_is_gone(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    receiver.answer = lambda _request: 410
    happen(farm, tuning_job, 2)
    senders()
    wait_for_end(farm, webhook)
    assert len(receiver.requests) == 1
    with farm.services.uow.read() as repos:
        assert "410" in repos.webhooks.get(webhook.id).disabled_reason


def test_a_receiver_that_never_ends_its_answer(
    farm: Any, tuning_job: Job, senders: Any, receiver: Receiver
) -> None:
    """It sends a byte now and then; another webhook is told meanwhile."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def drip() -> None:
            held: list[socket.socket] = []
            while not stop.wait(0.05):
                try:
                    held.append(listener.accept()[0])
                    held[-1].sendall(b"HTTP/1.1 200 OK\r\n")
                except OSError:
                    pass
                for connection in held:
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        pass
            for connection in held:
                connection.close()

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            slow = create_webhook(farm.services, url=f"http://127.0.0.1:{listener.getsockname()[1]}/")
            quick = create_webhook(farm.services, url=receiver.url)
            happen(farm, tuning_job)
            senders(timeout_sec=1.0)
            wait_for_end(farm, quick)
            wait_until(lambda: deliveries(farm, slow)[0].error, "the end of the slow attempt")
            assert "no answer within 1 s" in deliveries(farm, slow)[0].error
        finally:
            stop.set()
            dripping.join()


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


def test_a_handshake_that_never_ends(farm: Any, receiver: Receiver, senders: Any) -> None:
    """It sends a good TLS record's head, and then a byte now and then."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)

        def drip() -> None:
            held: list[socket.socket] = []
            while not stop.wait(0.02):
                try:
                    held.append(listener.accept()[0])
                    held[-1].sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03")
                except OSError:
                    pass
                for connection in held:
                    with suppress(OSError):
                        connection.sendall(b"x")
            for connection in held:
                connection.close()

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            slow = create_webhook(farm.services, url=f"https://127.0.0.1:{listener.getsockname()[1]}/")
            try_webhook(farm.services, slow.id)
            senders(timeout_sec=0.5)
            wait_until(lambda: deliveries(farm, slow)[0].error, "the end of the attempt")
            assert "no answer within 0.5 s" in deliveries(farm, slow)[0].error
        finally:
            stop.set()
            dripping.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
        b"HTTP/1.1 200 OK\r\n" + b"X-Header: %s\r\n" % (b"x" * 60_000) * 200,
        b"HTTP/1.1 200 " + b"x" * 1_000_000,
        b"\0" * 1_000_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n" + b"x" * 1_000_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"",
    ],
    ids=["continue", "headers", "status line", "noughts", "chunk", "length", "nothing"],
)
def test_answers_that_are_none(farm: Any, senders: Any, answer: bytes) -> None:
    """Huge, endless and malformed answers: the attempt ends with an error."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as taken, suppress(OSError):
                taken.recv(65536)
                taken.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        webhook = create_webhook(farm.services, url=f"http://127.0.0.1:{listener.getsockname()[1]}/")
        try_webhook(farm.services, webhook.id)
        senders(timeout_sec=20.0, patience=Patience(first_sec=3600.0))
        wait_until(lambda: deliveries(farm, webhook)[0].latency_sec is not None, "the end of the attempt")
        serving.join()
    (delivery,) = deliveries(farm, webhook)
    assert delivery.attempts == 1
    if answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"X-Header" not in answer:
        assert delivery.status == 200  # what it said is known; the rest is its affair
    else:
        assert delivery.state == "pending"
        assert delivery.error
        assert len(delivery.error) < 500


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


def test_over_tls(
    farm: Any, tuning_job: Job, senders: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate must be good, for the name in the URL."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with hook_receiver(tls) as receiver:
        webhook = create_webhook(farm.services, url=receiver.url)
        other_name = create_webhook(farm.services, url=receiver.url.replace("localhost", "127.0.0.1"))
        happen(farm, tuning_job)
        senders(timeout_sec=30.0)
        wait_until(lambda: deliveries(farm, webhook)[0].error, "an attempt")
        assert "certificate is invalid" in deliveries(farm, webhook)[0].error
        assert receiver.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        (delivery,) = wait_for_end(farm, webhook)
        assert (delivery.state, delivery.status) == ("delivered", 200)
        assert is_signed(receiver.requests[0], webhook.secret)
        wait_until(lambda: "mismatch" in deliveries(farm, other_name)[0].error, "the other name's refusal")
        assert len(receiver.requests) == 1


def test_nobody_listens(farm: Any, tuning_job: Job, senders: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    webhook = create_webhook(farm.services, url=f"https://127.0.0.1:{port}/")
    happen(farm, tuning_job)
    senders()
    wait_until(lambda: deliveries(farm, webhook)[0].error, "an attempt")
    assert deliveries(farm, webhook)[0].error == "Connection refused"


def test_a_receiver_that_speaks_no_http(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url.replace("http:", "https:"))
    happen(farm, tuning_job)
    senders()
    wait_until(lambda: deliveries(farm, webhook)[0].error, "an attempt")
    assert deliveries(farm, webhook)[0].status is None


def test_a_name_that_leads_elsewhere_a_moment_later(
    farm: Any, tuning_job: Job, receiver: Receiver, senders: Any
) -> None:
    """DNS rebinding: the address is checked again at each delivery."""
    webhook = create_webhook(farm.services, url=receiver.url)
    port = receiver.url.split(":")[2].split("/")[0]
    with farm.services.uow.engine.begin() as connection:
        statement = text("UPDATE webhooks SET url = :url")
        connection.execute(statement, {"url": f"http://hooks.example.org:{port}/hook"})
    happen(farm, tuning_job)
    hosts: list[str] = []

    def resolve(host: str, _port: int) -> tuple[str, ...]:
        hosts.append(host)
        return ("127.0.0.1",)

    strict = farm.with_settings(webhook_allow_private=False)
    sender = WebhookSender(strict.services, every_sec=0.01, patience=SOON, resolve=resolve)
    sender.start()
    wait_until(lambda: deliveries(farm, webhook)[0].error, "an attempt")
    sender.stop()
    assert "not public" in deliveries(farm, webhook)[0].error
    assert receiver.requests == []
    # Where it is allowed, the name is resolved once for each attempt, and the connection is to that address.
    hosts.clear()
    senders(resolve=resolve)
    wait_for_end(farm, webhook)
    assert hosts == ["hooks.example.org"]
    assert receiver.requests[0].headers["host"] == f"hooks.example.org:{port}"


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
