"""The RPC server survives everything that ends TVM's own."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from farm_processes import free_port
from malformed_hellos import HELLOS
from rpc_client import connect
from waiting import wait_gone, wait_until

from tunefarm_workers.device.rpc import probe
from tunefarm_workers.device.rpc.wire import (
    CODE_MISMATCH,
    INT,
    RPC_MAGIC,
    TRACKER_MAGIC,
    pack_frame,
    pack_hello,
    receive_exactly,
    unpack_frame,
)


def test_a_session_runs_and_leaves_nothing(server: Any, client: Any) -> None:
    for _ in range(3):
        client.call("good")
    assert server.wait_for("session-ended", count=3)["ending"] == "finished"
    assert server.session_folders() == []
    server.wait_childless()


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize(("kernel", "detail"), [("crash", "SIGSEGV"), ("leave", "exit code 7")])
def test_a_crashing_kernel_costs_its_session_only(server: Any, client: Any, kernel: str, detail: str) -> None:
    with pytest.raises(Exception, match=r".+"):
        client.call(kernel)
    ended = server.wait_for("session-ended")
    assert (ended["ending"], ended["detail"]) == ("crashed", detail)
    client.assert_serves()
    wait_until(lambda: server.session_folders() == [], "the end of the last session")


def test_an_endless_kernel_ends_with_the_clients_time_limit(server: Any, client: Any) -> None:
    with pytest.raises(Exception, match="RPCSessionTimeoutError"):
        client.call("spin", timeout_sec=2)
    assert server.wait_for("session-ended")["ending"] == "timed-out"
    client.assert_serves()


def test_a_frozen_session_is_killed_and_reaped(server: Any, client: Any) -> None:
    with pytest.raises(Exception, match="RPCSessionTimeoutError"):
        client.call("freeze", timeout_sec=2)
    server.wait_for("session-ended")
    server.wait_childless()
    client.assert_serves()


def test_a_client_without_a_limit_gets_the_servers(
    tracker: Any, start_server: Callable[..., Any], client: Any
) -> None:
    server = start_server(tracker.port, "--max-session-sec", "2")
    with pytest.raises(Exception, match="RPCSessionTimeoutError"):
        client.call("spin", timeout_sec=0)
    assert server.wait_for("session-ended")["ending"] == "timed-out"


def test_a_killed_clients_endless_kernel_does_not_hold_the_device(server: Any, client: Any) -> None:
    with subprocess.Popen(client.command("spin", timeout_sec=0)) as process:
        server.wait_for("session-started")
        wait_until(lambda: list(server.work_dir.glob("session-*/spinning")), "the kernel to run")
        process.kill()
    assert server.wait_for("session-ended")["ending"] == "abandoned"
    client.assert_serves()


def test_what_a_kernel_forks_ends_with_the_session(server: Any, client: Any) -> None:
    client.call("litter")
    server.wait_for("session-ended")
    server.wait_childless()


def test_bad_hellos_cost_their_own_connection_only(server: Any, client: Any) -> None:
    for data in HELLOS.values():
        with connect(server.port) as connection:
            connection.sendall(data)
    assert probe.greets(lambda: socket.create_connection(("127.0.0.1", server.port), probe.TIMEOUT_SEC))
    client.assert_serves()


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("data", [b"", pack_hello("client:no-such-key"), b"\x71\xf2\x0f"])
def test_a_reset_after_connecting(server: Any, client: Any, data: bytes) -> None:
    for _ in range(5):
        with connect(server.port) as connection:
            connection.sendall(data)
            _reset_on_close(connection)
    client.assert_serves()


def test_a_reset_after_the_right_key(tracker: Any, server: Any, client: Any) -> None:
    for count in range(1, 4):
        with connect(tracker.port) as asking, connect(server.port) as connection:
            _, _, match_key = _ask_tracker_for_device(asking, server.key)
            connection.sendall(pack_hello(f"client:{match_key}"))
            assert INT.unpack(receive_exactly(connection, 4))[0] == RPC_MAGIC
            _reset_on_close(connection)
        server.wait_for("session-ended", count=count)
    client.assert_serves()


def test_silent_peers_hold_up_nobody(server: Any, client: Any) -> None:
    silent = [connect(server.port) for _ in range(100)]
    try:
        client.assert_serves()
        # Each is hung up on in the end.
        for peer in silent:
            assert peer.recv(1) == b""
    finally:
        for peer in silent:
            peer.close()


def test_a_wrong_key_is_refused_harmlessly_even_during_a_session(server: Any, client: Any) -> None:
    session = client.session()
    server.wait_for("session-started")
    for _ in range(3):
        with connect(server.port) as connection:
            connection.sendall(pack_hello("client:wrong"))
            assert INT.unpack(receive_exactly(connection, 4))[0] == CODE_MISMATCH
    session.upload(str(client.kernels))
    session.load_module("kernels.so")["good"]()


def test_a_key_that_nobody_comes_with_is_replaced(tracker: Any, server: Any, client: Any) -> None:
    with connect(tracker.port) as asking:
        _ask_tracker_for_device(asking, server.key)
    client.assert_serves()


@pytest.mark.exhaustive
def test_the_tracker_can_go_and_come_back(
    tracker: Any, start_tracker: Callable[..., Any], server: Any, client: Any
) -> None:
    client.assert_serves()
    tracker.end()
    server.wait_for("tracker", count=2)
    start_tracker(tracker.port)
    client.assert_serves()


@pytest.mark.exhaustive
def test_the_tracker_can_come_late(
    start_tracker: Callable[..., Any], start_server: Callable[..., Any], make_client: Callable[..., Any]
) -> None:
    port = free_port()
    start_server(port)
    start_tracker(port)
    make_client(port).assert_serves()


@pytest.mark.exhaustive
def test_a_frozen_tracker_does_not_freeze_the_server(tracker: Any, server: Any, client: Any) -> None:
    server.wait_for("tracker")
    os.kill(tracker.pid, signal.SIGSTOP)
    server.wait_for("tracker", count=2)
    assert probe.greets(lambda: socket.create_connection(("127.0.0.1", server.port), probe.TIMEOUT_SEC))
    os.kill(tracker.pid, signal.SIGCONT)
    client.assert_serves()


def test_files_stay_in_the_sessions_folder(server: Any, client: Any, tmp_path: Path) -> None:
    from tvm.rpc import RPCSession

    session: RPCSession = client.session()
    with pytest.raises(Exception, match="own folder"):
        session.upload(bytearray(b"x"), "../../escaped")
    assert not list(tmp_path.rglob("escaped"))
    del session  # it ends; else the next one waits for its time limit
    session = client.session()
    with pytest.raises(Exception, match="own folder"):
        session.download("/etc/hostname")


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("busy", [False, True])
def test_the_end_of_stdin_ends_everything(server: Any, client: Any, busy: bool) -> None:
    session = client.session() if busy else None
    children = psutil.Process(server.pid).children(recursive=True)
    assert bool(children) == busy
    server.process.stdin.close()
    assert server.process.wait(90) == 0
    wait_gone((child.pid for child in children), "its children")
    assert server.session_folders() == []
    del session


def test_the_end_of_stdin_wakes_a_stopped_server(server: Any, client: Any) -> None:
    """Its parent lives, so that its process group is no orphan's, which the kernel would wake as well."""
    session = client.session()
    (child,) = psutil.Process(server.pid).children()
    for pid in (server.pid, child.pid):
        os.kill(pid, signal.SIGSTOP)
    server.process.stdin.close()
    assert server.process.wait(90) == 0
    wait_gone([child.pid], "the session")
    assert server.session_folders() == []
    del session


def test_a_killed_server_takes_its_session_along(server: Any, client: Any) -> None:
    session = client.session()
    (child,) = psutil.Process(server.pid).children()
    server.end(signal.SIGKILL)
    wait_gone([child.pid], "the session")
    del session


def _reset_on_close(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _ask_tracker_for_device(asking: socket.socket, key: str) -> tuple[str, int, str]:
    code, value = _ask_tracker(asking, [4, key, "", 1])
    assert code == 0
    host, port, match_key = value
    return host, port, match_key


def _ask_tracker(connection: socket.socket, question: list[Any]) -> Any:
    """Send the tracker a greeting and a request, and return its answer."""
    connection.sendall(INT.pack(TRACKER_MAGIC))
    assert receive_exactly(connection, INT.size) == INT.pack(TRACKER_MAGIC), "this is not a tracker"
    connection.sendall(pack_frame(question))
    received = bytearray()
    while True:
        is_complete, answer = unpack_frame(received)
        if is_complete:
            return answer
        chunk = connection.recv(1 << 16)
        if not chunk:
            raise ConnectionResetError("the tracker closed the connection")
        received += chunk
