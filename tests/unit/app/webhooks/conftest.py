"""A receiver, and senders of a farm that may send to this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hook_deliveries import SOON
from hook_receiver import Receiver, hook_receiver

from tunefarm_app.webhooks.sender import WebhookSender


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
