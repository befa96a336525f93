"""``tunefarm webhooks`` and ``client.webhooks`` against the real API and a real receiver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from awaited_client import awaited_client
from hook_receiver import Receiver, hook_receiver, is_signed
from replay_server import ReplayServer, replay_server
from waiting import wait_until

from tunefarm.client import Client, ConflictError, InvalidRequestError, NotFoundError
from tunefarm_app.webhooks.sender import WebhookSender


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[ReplayServer]:
    with replay_server(tmp_path, webhook_allow_private=True) as server:
        server.add_device()
        sender = WebhookSender(server.services, every_sec=0.02)
        sender.start()
        yield server
        sender.stop()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with hook_receiver() as receiver:
        yield receiver


def test_from_the_command_line(run: Any, farm: ReplayServer, receiver: Receiver, tmp_path: Path) -> None:
    result = run("webhooks", "create", receiver.url, "--kind", "finished")
    secret = result.stdout.strip()
    assert secret.startswith("whsec_")
    (webhook,) = json.loads(run("webhooks", "list", "--json").stdout)
    assert "secret" not in webhook
    listed = run("webhooks", "list").stdout
    assert receiver.url in listed
    assert "created" in listed

    assert "answered 200" in run("webhooks", "test", webhook["id"]).stdout
    job_id = json.loads(
        run(
            "tune", farm.write_model(tmp_path / "net.onnx"), "--trials", "8", "-o", tmp_path / "out", "--json"
        ).stdout.splitlines()[-1]
    )
    assert job_id
    wait_until(
        lambda: "finished" in run("webhooks", "deliveries", webhook["id"], "--state", "delivered").stdout,
        "the delivery",
    )
    assert [request.message["type"] for request in receiver.requests] == ["test", "job.finished"]
    assert all(is_signed(request, secret) for request in receiver.requests)
    listed = json.loads(run("webhooks", "deliveries", webhook["id"], "--json").stdout)
    assert [delivery["kind"] for delivery in listed] == ["finished", "test"]

    receiver.answer = lambda _request: 500
    assert "answered 500" in run("webhooks", "test", webhook["id"], code=4).stderr
    assert "is disabled" in run("webhooks", "disable", webhook["id"]).stdout
    assert "disabled by a person" in run("webhooks", "list").stdout
    assert "is enabled" in run("webhooks", "enable", webhook["id"]).stdout
    assert "is deleted" in run("webhooks", "delete", webhook["id"]).stdout
    run("webhooks", "delete", webhook["id"], code=3)
    run("webhooks", "create", "http://169.254.169.254/", code=2)


@pytest.mark.parametrize("kind", ["blocking", "awaited"])
def test_from_python(farm: ReplayServer, receiver: Receiver, kind: str) -> None:
    if kind == "blocking":
        with Client(farm.url, farm.api_key) as client:
            use(client, farm, receiver)
        return
    with asyncio.Runner() as runner, awaited_client(runner, farm.url, farm.api_key) as client:
        use(client, farm, receiver)


def use(client: Any, farm: ReplayServer, receiver: Receiver) -> None:
    webhook = client.webhooks.create(receiver.url, kinds=["finished"])
    assert webhook.secret not in repr(webhook)
    assert client.webhooks.get(webhook.id) == client.webhooks.list()[0]
    delivery = client.webhooks.test(webhook.id)
    assert (delivery.state, delivery.status, delivery.kind, delivery.error) == ("delivered", 200, "test", "")
    assert is_signed(receiver.requests[0], webhook.secret)
    assert list(client.webhooks.deliveries(webhook.id, state="delivered")) == [delivery]
    assert client.webhooks.disable(webhook.id).disabled_reason == "disabled by a person"
    with pytest.raises(ConflictError):
        client.webhooks.test(webhook.id)
    assert client.webhooks.get(webhook.id).disabled_reason == "disabled by a person"
    assert client.webhooks.enable(webhook.id).disabled_at is None
    client.webhooks.delete(webhook.id)
    assert client.webhooks.list() == ()
    with pytest.raises(NotFoundError):
        client.webhooks.get(webhook.id)
    with pytest.raises(InvalidRequestError) as caught:
        client.webhooks.create(receiver.url, kinds=["odd"])
    assert caught.value.code == "unknown-kind"
