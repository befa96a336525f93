"""The agent keeps its device on the farm, whatever process dies or freezes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from waiting import wait_gone, wait_until


def test_a_device_comes_online_and_is_measured_through(
    agent: Any, api: Any, tracker: Any, make_client: Any
) -> None:
    online = agent.wait_online()
    (registration,) = api.registrations
    assert registration["name"] == "box"
    assert registration["target"] == {"kind": "llvm", "num-cores": 1}
    assert registration["device_model"] == "test-box"
    assert registration["ready"] is False
    assert registration["rpc_key"] == online["rpc_key"]
    assert {"cpu", "cores", "memory_bytes", "versions", "hostname", "machine_id"} <= set(registration["info"])
    assert api.heartbeats[0]["ready"] is False
    assert api.heartbeats[-1]["ready"] is True
    make_client(tracker.port, agent.rpc_key).assert_serves()


def test_a_killed_server_comes_back(agent: Any, api: Any, tracker: Any, make_client: Any) -> None:
    first = agent.wait_online()
    beats = len(api.heartbeats)
    os.kill(first["server_pid"], signal.SIGKILL)
    agent.wait_online(other_than=first["server_pid"])
    assert not all(beat["ready"] for beat in api.heartbeats[beats:])
    make_client(tracker.port, agent.rpc_key).assert_serves()


def test_a_frozen_server_is_replaced(agent: Any, tracker: Any, make_client: Any) -> None:
    first = agent.wait_online()
    os.kill(first["server_pid"], signal.SIGSTOP)
    wait_gone([first["server_pid"]], "the frozen server")
    agent.wait_online(other_than=first["server_pid"])
    make_client(tracker.port, agent.rpc_key).assert_serves()


def test_a_crashing_kernel_does_not_cost_the_server(agent: Any, tracker: Any, make_client: Any) -> None:
    first = agent.wait_online()
    client = make_client(tracker.port, agent.rpc_key)
    for _ in range(3):
        with pytest.raises(Exception, match=r".+"):
            client.call("crash")
        client.assert_serves()
    assert psutil.pid_exists(first["server_pid"])


@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_agent_leaves_nothing(agent: Any, tracker: Any, make_client: Any, frozen: bool) -> None:
    agent.wait_online()
    session = make_client(tracker.port, agent.rpc_key).session()
    # It answers when its process has said whom it dies with: one that was stopped before that would stay.
    session.get_function("tvm.rpc.server.workpath")("")
    below = wait_until(
        lambda: (
            (children := psutil.Process(agent.pid).children(recursive=True))
            and len(children) == 2
            and children
        ),
        "the server and its session",
    )
    if frozen:
        for process in below:
            process.suspend()
    agent.end(signal.SIGKILL)
    wait_gone((process.pid for process in below), "everything")
    if not frozen:
        assert list((agent.work_dir / "sessions").iterdir()) == []
    del session


def test_an_asked_agent_says_goodbye_and_leaves_nothing(
    agent: Any, api: Any, tracker: Any, make_client: Any
) -> None:
    agent.wait_online()
    session = make_client(tracker.port, agent.rpc_key).session()
    below = psutil.Process(agent.pid).children(recursive=True)
    agent.end(signal.SIGTERM)
    assert agent.process.returncode == 0
    assert api.heartbeats[-1]["reason"] == "the agent is stopping"
    assert api.heartbeats[-1]["ready"] is False
    wait_gone((process.pid for process in below), "everything")
    assert list((agent.work_dir / "sessions").iterdir()) == []
    del session


def test_a_tracker_that_comes_back_finds_the_device(
    agent: Any, api: Any, tracker: Any, start_tracker: Callable[..., Any], make_client: Any
) -> None:
    first = agent.wait_online()
    tracker.end()
    wait_until(lambda: api.heartbeats[-1]["reason"] == "the tracker does not answer", "the agent's notice")
    seen = len(agent.events)
    start_tracker(tracker.port)
    again = agent.wait_online(after=seen)
    assert again["server_pid"] == first["server_pid"]
    make_client(tracker.port, agent.rpc_key).assert_serves()


def test_an_absent_api_does_not_end_the_service(agent: Any, api: Any, tracker: Any, make_client: Any) -> None:
    agent.wait_online()
    api.status = 503
    wait_until(lambda: not agent.events[-1]["online"], "the agent's notice")
    make_client(tracker.port, agent.rpc_key).assert_serves()
    seen = len(agent.events)
    api.status = 200
    agent.wait_online(after=seen)
    assert len(api.registrations) == 1


def test_a_forgotten_device_registers_again(agent: Any, api: Any, tracker: Any, make_client: Any) -> None:
    first = agent.wait_online()
    api.devices.clear()
    wait_until(lambda: len(api.registrations) >= 2, "the second registration")
    wait_until(
        lambda: agent.events[-1]["device_id"] == "dev_2" and agent.events[-1]["online"], "the new device"
    )
    assert agent.events[-1]["server_pid"] == first["server_pid"]
    make_client(tracker.port, agent.rpc_key).assert_serves()


def test_an_unknown_key_is_refused_clearly(start_agent: Callable[..., Any]) -> None:
    agent = start_agent(key="tfk_wrong")
    assert agent.process.wait(90) == 2


def test_a_second_agent_of_the_same_folder_is_refused(agent: Any, start_agent: Callable[..., Any]) -> None:
    agent.wait_online()
    assert start_agent().process.wait(90) == 2
