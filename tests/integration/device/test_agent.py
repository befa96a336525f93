"""The agent keeps its device on the farm, and leaves nothing behind; `test_agent_by_gateway` is about its sessions."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest
from device_processes import AgentProcess
from gateway_client import LeaseHolder
from waiting import wait_gone, wait_until

from .conftest import FarmApi

Hold = Callable[[int], LeaseHolder]


def test_a_device_comes_online_and_is_measured_through(agent: AgentProcess, api: FarmApi, hold: Hold) -> None:
    online = agent.wait_online()
    (registration,) = api.registrations
    assert registration["name"] == "box"
    assert registration["target"] == {"kind": "llvm", "num-cores": 1}
    assert registration["device_model"] == "test-box"
    assert registration["ready"] is False
    assert registration["rpc_key"] == online["rpc_key"]
    assert not {"tracker_host", "tracker_port"} & set(registration)
    assert {"cpu", "cores", "memory_bytes", "versions", "hostname", "machine_id"} <= set(registration["info"])
    assert api.heartbeats[0]["ready"] is False
    assert api.heartbeats[-1]["ready"] is True
    hold(1).assert_serves()


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_agent_leaves_nothing(agent: AgentProcess, hold: Hold, frozen: bool) -> None:
    holder = hold(1)
    holder.open()
    # It answers when its process has said whom it dies with: one that was stopped before that would stay.
    assert holder.is_alive()
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


def test_an_asked_agent_says_goodbye_and_leaves_nothing(
    agent: AgentProcess, api: FarmApi, hold: Hold
) -> None:
    holder = hold(1)
    holder.open()
    below = psutil.Process(agent.pid).children(recursive=True)
    agent.end(signal.SIGTERM)
    assert agent.process.returncode == 0
    assert api.heartbeats[-1]["reason"] == "the agent is stopping"
    assert api.heartbeats[-1]["ready"] is False
    wait_gone((process.pid for process in below), "everything")
    assert list((agent.work_dir / "sessions").iterdir()) == []


def test_an_absent_api_does_not_end_the_service(agent: AgentProcess, api: FarmApi, hold: Hold) -> None:
    holder = hold(1)
    api.status = 503
    wait_until(lambda: not agent.events[-1]["online"], "the agent's notice")
    holder.assert_serves()
    seen = len(agent.events)
    api.status = 200
    agent.wait_online(after=seen)
    assert len(api.registrations) == 1


def test_a_forgotten_device_registers_again(agent: AgentProcess, api: FarmApi, hold: Hold) -> None:
    first = agent.wait_online()
    api.devices.clear()
    wait_until(lambda: len(api.registrations) >= 2, "the second registration")
    wait_until(
        lambda: agent.events[-1]["device_id"] == "dev_2" and agent.events[-1]["online"], "the new device"
    )
    assert agent.events[-1]["server_pid"] == first["server_pid"]
    wait_until(lambda: api.certified[-1].startswith("dev_2/"), "its certificate")
    hold(1).assert_serves()


def test_an_unknown_key_is_refused_clearly(start_agent: Callable[..., AgentProcess]) -> None:
    agent = start_agent(key="tfk_wrong")
    assert agent.process.wait(90) == 2


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("option", ["--tracker=127.0.0.1:9190", "--host=0.0.0.0", "--port=9000"])
def test_an_agent_of_a_tracker_is_refused_clearly(
    start_agent: Callable[..., AgentProcess], capfd: pytest.CaptureFixture[str], option: str
) -> None:
    assert start_agent(option).process.wait(90) == 2
    assert "--gateway" in capfd.readouterr().err


def test_a_second_agent_of_the_same_folder_is_refused(
    agent: AgentProcess, start_agent: Callable[..., AgentProcess]
) -> None:
    agent.wait_online()
    assert start_agent().process.wait(90) == 2
