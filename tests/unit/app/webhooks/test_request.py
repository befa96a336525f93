"""One request to a receiver: redirects, TLS, answers that are slow, endless or no HTTP."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hook_deliveries import SOON, deliveries, happen, wait_for_end, wait_until
from hook_receiver import Receiver, hook_receiver, is_signed
from sqlalchemy import text

from tunefarm_app.webhooks.register import (
    create_webhook,
    try_webhook,
)
from tunefarm_app.webhooks.sender import Patience, WebhookSender
from tunefarm_db.values import Job


def test_redirects_are_not_followed(farm: Any, tuning_job: Job, receiver: Receiver, senders: Any) -> None:
    webhook = create_webhook(farm.services, url=receiver.url)
    with hook_receiver() as elsewhere:
        receiver.answer, receiver.location = (lambda _request: 307), elsewhere.url
        happen(farm, tuning_job)
        senders()
        wait_until(lambda: len(receiver.requests) > 1, "a second attempt")
        assert elsewhere.requests == []
    assert "redirects are not followed" in deliveries(farm, webhook)[0].error


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
