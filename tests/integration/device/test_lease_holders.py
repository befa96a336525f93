"""A worker that lost its lease without knowing loses the device to the new holder, at once and for good."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from device_processes import Child
from repository import ROOT
from rpc_client import connect
from waiting import gone

from tunefarm_workers.device.rpc.wire import CODE_MISMATCH, INT, pack_hello, receive_exactly


class Holder(Child):
    """A worker under a lease."""

    def __init__(self, tracker_port: int, key: str, fence: int | str) -> None:
        script = ROOT / "tests/support/devices/lease_client.py"
        super().__init__([str(script), str(tracker_port), key, str(fence)])
        self.wait_for("started")

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def ask(self, word: str) -> dict[str, Any]:
        count = len(self.named(word)) + 1
        self.tell(word)
        return self.wait_for(word, count)


@pytest.fixture
def hold(start: Callable[..., Any], tracker: Any, server: Any) -> Callable[[int | str], Holder]:
    return lambda fence: start(Holder, tracker.port, server.key, fence)


@pytest.mark.exhaustive
def test_a_frozen_workers_session_ends_when_the_next_holder_comes(
    server: Any, hold: Callable[..., Holder]
) -> None:
    frozen = hold(7)
    assert "error" not in frozen.ask("open")
    os.kill(frozen.pid, signal.SIGSTOP)
    holder = hold(8)
    assert "error" not in holder.ask("open")
    assert server.wait_for("session-ended")["ending"] == "overtaken"
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.ask("alive")["alive"] is False
    assert holder.ask("alive")["alive"] is True

    # Nor does it get another one, neither beside the holder nor between two of its sessions.
    frozen.tell("open")
    holder.ask("close")
    assert "error" in frozen.wait_for("open", 2)
    assert server.wait_for("session-refused")["fence"] == 7
    assert "error" not in holder.ask("open")
    assert holder.ask("alive")["alive"] is True
    assert not gone(server.pid)


@pytest.mark.exhaustive
def test_one_holder_waits_for_its_own_session(server: Any, hold: Callable[..., Holder]) -> None:
    """Two processes of one lease (the kernels' check and the model's) take turns, as they always did."""
    first, second = hold(7), hold(7)
    assert "error" not in first.ask("open")
    second.tell("open")
    assert first.ask("alive")["alive"] is True
    first.ask("close")
    assert "error" not in second.wait_for("open")
    server.wait_for("session-ended")
    assert {event["ending"] for event in server.named("session-ended")} == {"finished"}


@pytest.mark.exhaustive
def test_a_client_without_a_lease_is_not_sent_away(server: Any, hold: Callable[..., Holder]) -> None:
    stranger, holder = hold("none"), hold(8)
    assert "error" not in stranger.ask("open")
    holder.tell("open")
    assert stranger.ask("alive")["alive"] is True
    stranger.ask("close")
    assert "error" not in holder.wait_for("open")


def test_a_claim_of_another_key_does_nothing(server: Any, hold: Callable[..., Holder]) -> None:
    holder = hold(7)
    assert "error" not in holder.ask("open")
    for key in ("claim:other", f"claim:{server.key}", "claim:"):
        for options in ("", " -fence=6", " -fence=7", " -fence=x", " -fence=-1"):
            with connect(server.port) as connection:
                connection.sendall(pack_hello(f"client:{key}{options}"))
                if "x" not in options:
                    assert INT.unpack(receive_exactly(connection, 4))[0] == CODE_MISMATCH
    assert holder.ask("alive")["alive"] is True
