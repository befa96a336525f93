"""What the agent makes of requests for sessions that are not a gateway's everyday ones."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from waiting import wait_until

from tunefarm_tuning.process.tunnel import BadMessageError
from tunefarm_workers.device.backoff import Backoff
from tunefarm_workers.device.tunnel import link as link_module
from tunefarm_workers.device.tunnel.link import GatewayAccess, GatewayLink


class Answers:
    """In the place of a conversation: keeps what is posted."""

    def __init__(self) -> None:
        self.posted: list[Mapping[str, Any]] = []

    def post(self, message: Mapping[str, Any]) -> None:
        self.posted.append(message)

    def whys(self) -> list[str]:
        return [message["why"] for message in self.posted]


class Server:
    """A device's RPC server that refuses to be connected to, once it may answer."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def connect(self) -> tuple[socket.socket, int]:
        self.may_answer.wait()
        raise OSError("the server is away")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.may_answer.set()


@pytest.fixture
def link(server: Server) -> Iterator[GatewayLink]:
    nobody = GatewayAccess(address=("127.0.0.1", 1), context=ssl.create_default_context())
    link = GatewayLink(nobody, server.connect, rpc_key="dev-x")
    yield link
    link.close()


def ask(link: GatewayLink, answers: Answers, **changed: Any) -> None:
    message = {"open": "s", "fence": 1, "timeout_sec": 5.0, "wait_sec": 5.0, **changed}
    link._take(answers, message, Backoff(first_sec=1.0, most_sec=1.0))  # type: ignore[arg-type]


def test_a_time_to_wait_that_ran_out_on_the_way_ends_no_conversation(
    link: GatewayLink, server: Server
) -> None:
    """Gateways of before send what is left of it, which may be a little below 0."""
    server.may_answer.set()
    answers = Answers()
    ask(link, answers, wait_sec=-0.001)
    wait_until(lambda: answers.whys() == ["the server is away"], "the answer")


@pytest.mark.parametrize(
    "changed",
    [
        {"wait_sec": float("nan")},
        {"wait_sec": float("-inf")},
        {"wait_sec": 1e8},
        {"timeout_sec": -1.0},
        {"timeout_sec": float("nan")},
    ],
)
def test_times_that_are_none_are_refused(link: GatewayLink, changed: dict[str, float]) -> None:
    with pytest.raises(BadMessageError, match="without a time limit"):
        ask(link, Answers(), **changed)


def test_no_more_sessions_begin_at_once_than_may_be(link: GatewayLink, server: Server) -> None:
    """They count from their start, not from when the server has answered."""
    answers = Answers()
    for _ in range(link_module._MOST_SESSIONS + 2):
        ask(link, answers)
    assert answers.whys() == ["it has too many sessions"] * 2
    server.may_answer.set()
    wait_until(
        lambda: all(thread.name != "session" for thread in threading.enumerate()), "the sessions to end"
    )
    ask(link, answers)
    wait_until(lambda: answers.whys()[-1] == "the server is away", "a session again")
