"""Random messages and hellos against a device: its agent goes on, and its RPC server serves who has a right to it.

As `test_protocol_fuzz`: ``TUNEFARM_FUZZ`` and ``TUNEFARM_FUZZ_SEED`` say how many, and which.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest
from device_processes import KERNELS_SOURCE, ServerProcess, TrackerProcess, compile_library
from fuzzing import AT_ONCE, MESSAGES, SLOWEST_SEC, Say, batches, fuzz, message_of
from hypothesis import given
from hypothesis import strategies as st
from json_mutations import any_json
from malformed_hellos import HELLOS
from rpc_client import Client
from waiting import wait_until

from tunefarm_tuning.process.tunnel import Conversation
from tunefarm_workers.device.backoff import Backoff
from tunefarm_workers.device.rpc.wire import pack_hello
from tunefarm_workers.device.tunnel.link import GatewayAccess, GatewayLink

_NUMBERS = st.one_of(
    st.floats(), st.integers(), st.sampled_from([-1, 0, 5, 1 << 80, 1e308, "7", "x", None, [], True])
)
_ORDERS = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda session, fence, timeout_sec, wait_sec: message_of(
            {"open": session, "fence": fence, "timeout_sec": timeout_sec, "wait_sec": wait_sec}
        ),
        any_json("open"),
        _NUMBERS,
        _NUMBERS,
        _NUMBERS,
    ),
    MESSAGES,
)


def test_messages_of_a_gateway_at_the_agent(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent answers, or ends the conversation and dials again; no thread of it dies."""
    died: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: died.append(repr(failure)))
    opened: Counter[str] = Counter()

    def connect() -> tuple[socket.socket, int]:
        """Return a server that refuses each session, or says nothing at all."""
        near, far = socket.socketpair()
        opened["servers"] += 1
        far.sendall(b"\x00\x01\x02\x03" if opened["servers"] % 2 else b"")
        far.close()
        return near, 7

    nobody = GatewayAccess(address=("127.0.0.1", 1), context=ssl.create_default_context())
    link = GatewayLink(nobody, connect, rpc_key="dev-fuzz")
    ends: Counter[str] = Counter()

    @fuzz
    @given(frames=batches(_ORDERS))
    def send(frames: list[bytes]) -> None:
        near, far = socket.socketpair()
        with near, far:
            far.sendall(b"".join(frames))
            far.shutdown(socket.SHUT_WR)
            conversation = Conversation(near)
            try:
                conversation.run(
                    lambda message: link._take(conversation, message, Backoff(first_sec=1.0, most_sec=1.0)),
                    until=time.monotonic() + SLOWEST_SEC,
                )
                ends["silent"] += 1
            except OSError as error:
                ends[type(error).__name__] += 1

    send()
    wait_until(
        lambda: all(thread.name != "session" for thread in threading.enumerate()), "the sessions to end"
    )
    assert not link._sessions
    link.close()
    assert not died
    assert ends["silent"] == 0
    assert opened["servers"]
    say(f"agent: {ends.total() * AT_ONCE} messages, {dict(ends)}, {opened['servers']} sessions opened")


_HELLOS = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(list(HELLOS.values())),
    st.builds(
        lambda key, options: pack_hello(f"{key} {options}"),
        st.sampled_from(["client:dev-x", "claim:dev-x", "client:", "server:dev-x", "", "client:claim:dev-x"]),
        st.one_of(
            st.text(max_size=40), st.sampled_from(["-timeout=1e400", "-fence=-1", "-fence=" + "9" * 90])
        ),
    ),
)


def test_hellos_at_the_rpc_server_of_a_device(tmp_path: Path, say: Say) -> None:
    """Whoever speaks to it has no session for that, and it serves who has a right to one afterwards."""
    with closing(TrackerProcess()) as tracker:
        key = "dev-fuzzed"
        with closing(ServerProcess(tracker.port, tmp_path / "sessions", key)) as server:
            port = server.wait_for("listening")["port"]
            sent: Counter[str] = Counter()

            @fuzz
            @given(hellos=batches(_HELLOS), ends=st.booleans())
            def send(hellos: list[bytes], ends: bool) -> None:
                for hello in hellos:
                    with socket.create_connection(("127.0.0.1", port), 60.0) as connection:
                        with suppress(OSError):
                            connection.sendall(hello)
                            if ends:
                                connection.shutdown(socket.SHUT_WR)
                                sent["answered"] += bool(connection.recv(64))
                        sent["hellos"] += 1

            send()
            assert [event for event in server.events if event["event"] == "session-started"] == []
            Client(tracker.port, compile_library(KERNELS_SOURCE, tmp_path / "kernels.so"), key).call("good")
            assert server.process.poll() is None
    say(f"RPC server: {sent['hellos']} hellos, {sent['answered']} refused with a word")
