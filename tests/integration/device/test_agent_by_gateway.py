"""A device that dials the farm's gateway stays on the farm, whatever process dies or freezes: by its sessions."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from device_processes import AgentProcess
from gateway_client import LeaseHolder
from gateway_process import GatewayProcess
from waiting import wait_gone, wait_until

from tunefarm_app.identity.authority import device_identity
from tunefarm_tuning.core.errors import DeviceLostError

from .conftest import FarmApi

Hold = Callable[[int], LeaseHolder]


def test_a_device_is_measured_through_without_a_port(api: FarmApi, agent: AgentProcess, hold: Hold) -> None:
    online = agent.wait_online()
    (registration,) = api.registrations
    assert registration["by_gateway"] is True
    assert api.certified == [device_identity(online["device_id"], online["rpc_key"])]
    hold(1).assert_serves()
    for pid in (agent.pid, online["server_pid"]):
        connections = psutil.Process(pid).net_connections()
        assert [link for link in connections if link.status == psutil.CONN_LISTEN] == []


@pytest.mark.exhaustive
def test_a_large_file_arrives_whole(hold: Hold, tmp_path: Path) -> None:
    holder, file = hold(1), tmp_path / "network.so"
    holder.open()
    for size in (1 << 10, 1 << 16, (5 << 20) + 7):
        file.write_bytes(os.urandom(size))
        assert holder.send(file) == hashlib.sha256(file.read_bytes()).hexdigest()
    holder.run("good")


@pytest.mark.exhaustive
def test_a_file_that_cannot_be_written_costs_no_session(hold: Hold, tmp_path: Path) -> None:
    holder, file = hold(1), tmp_path / "network.so"
    file.write_bytes(os.urandom(3 << 20))
    holder.open()
    with pytest.raises(Exception, match="own folder"):
        holder.send(file, "../../escaped")
    assert not list(tmp_path.rglob("escaped"))
    holder.run("good")
    assert holder.send(file) == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_killed_server_comes_back(api: FarmApi, agent: AgentProcess, hold: Hold) -> None:
    holder = hold(1)
    first = agent.wait_online()
    beats = len(api.heartbeats)
    before = holder.open()
    os.kill(first["server_pid"], signal.SIGKILL)
    wait_until(lambda: not holder.is_alive(), "the end of the session")
    holder.leave()
    agent.wait_online(other_than=first["server_pid"])
    assert not all(beat["ready"] for beat in api.heartbeats[beats:])
    assert holder.open() != before
    holder.run("good")


@pytest.mark.exhaustive
def test_a_frozen_server_is_replaced(agent: AgentProcess, hold: Hold) -> None:
    first = agent.wait_online()
    os.kill(first["server_pid"], signal.SIGSTOP)
    wait_gone([first["server_pid"]], "the frozen server")
    agent.wait_online(other_than=first["server_pid"])
    hold(1).assert_serves()


@pytest.mark.exhaustive
def test_a_crashing_kernel_does_not_cost_the_server(agent: AgentProcess, hold: Hold) -> None:
    holder = hold(1)
    first = agent.wait_online()
    for _ in range(2):
        holder.open()
        with pytest.raises(Exception, match=r".+"):
            holder.run("crash")
        assert not holder.is_alive()
        holder.leave()
        holder.assert_serves()
    assert psutil.pid_exists(first["server_pid"])


def test_an_endless_kernel_ends_with_the_clients_time_limit(hold: Hold) -> None:
    holder = hold(1)
    holder.open(timeout_sec=2.0)
    with pytest.raises(Exception, match="RPCSessionTimeoutError"):
        holder.run("spin")
    holder.leave()
    holder.assert_serves()


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_ends_in_a_measurement_is_a_lost_device(
    agent: AgentProcess, hold: Hold, number: int
) -> None:
    holder = hold(1)
    holder.open()
    holder.start("spin")
    wait_until(lambda: list((agent.work_dir / "sessions").glob("*/spinning")), "the kernel")
    below = psutil.Process(agent.pid).children(recursive=True)
    agent.end(number)
    with pytest.raises(Exception, match=r".+"):
        holder.child.finish_call(timeout_sec=60.0)
    assert not holder.is_alive()
    wait_gone((process.pid for process in below), "everything")
    holder.leave()
    with pytest.raises(DeviceLostError, match="not connected") as caught:
        holder.open(connect_timeout_sec=10.0)
    assert caught.value.fields == {"away": True}


def test_a_gateway_that_comes_back_finds_the_device(
    api: FarmApi, agent: AgentProcess, gateway: GatewayProcess, start: Callable[..., Any], hold: Hold
) -> None:
    holder = hold(1)
    first = agent.wait_online()
    holder.open()
    gateway.end()
    wait_until(lambda: api.heartbeats[-1]["reason"] == "the gateway does not answer", "the agent's notice")
    wait_until(lambda: not holder.is_alive(), "the end of the session: a broken tunnel is a lost device")
    holder.leave()
    seen = len(agent.events)
    start(GatewayProcess, gateway.folder, gateway.port)
    again = agent.wait_online(after=seen)
    assert again["server_pid"] == first["server_pid"]
    holder.assert_serves()


@pytest.mark.exhaustive
def test_a_frozen_gateway_is_noticed(
    api: FarmApi, agent: AgentProcess, gateway: GatewayProcess, hold: Hold
) -> None:
    """The connections stay open, and nothing comes: as behind a router that has forgotten them."""
    holder = hold(1)
    os.kill(gateway.pid, signal.SIGSTOP)
    wait_until(lambda: api.heartbeats[-1]["reason"] == "the gateway does not answer", "the agent's notice")
    with pytest.raises(DeviceLostError):
        holder.open(connect_timeout_sec=2.0)
    seen = len(agent.events)
    os.kill(gateway.pid, signal.SIGCONT)
    agent.wait_online(after=seen)
    holder.assert_serves()


@pytest.mark.exhaustive
def test_a_frozen_agent_is_no_device_until_it_wakes(agent: AgentProcess, hold: Hold) -> None:
    holder = hold(1)
    os.kill(agent.pid, signal.SIGSTOP)

    def refusal() -> str:
        try:
            holder.open(connect_timeout_sec=5.0)
        except DeviceLostError as error:
            return error.message
        raise AssertionError("a frozen agent opened a session")

    wait_until(lambda: "not connected" in refusal(), "the gateway's notice", every_sec=1.0)
    os.kill(agent.pid, signal.SIGCONT)
    holder.assert_serves()


def test_certificates_are_renewed(
    api: FarmApi, start_agent: Callable[..., AgentProcess], gateway: GatewayProcess, kernels: Path
) -> None:
    """The gateway ends a conversation with its certificate, and the agent comes back with the next one; sessions go on."""
    api.certificate_days = 8 / 86_400
    agent = start_agent()
    agent.wait_online()
    with closing(LeaseHolder(gateway, api.certified[0], 1, kernels)) as holder:
        holder.open()
        wait_until(lambda: len(api.certified) >= 4, "four certificates")
        assert set(api.certified) == {api.certified[0]}
        assert holder.is_alive()
        holder.leave()
        holder.assert_serves()


@pytest.mark.exhaustive
def test_a_forgotten_device_is_known_by_its_new_name(
    api: FarmApi, agent: AgentProcess, gateway: GatewayProcess, kernels: Path
) -> None:
    agent.wait_online()
    api.devices.clear()
    wait_until(lambda: len(api.certified) >= 2, "the second certificate")
    assert api.certified[1].startswith("dev_2/")
    with closing(LeaseHolder(gateway, api.certified[1], 1, kernels)) as holder:
        holder.assert_serves()


@pytest.mark.exhaustive
def test_a_frozen_workers_session_ends_when_the_next_holder_comes(hold: Hold) -> None:
    frozen, holder = hold(7), hold(8)
    frozen.open()
    pid = frozen.child.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    holder.open()
    os.kill(pid, signal.SIGCONT)
    assert not frozen.is_alive()
    assert holder.is_alive()

    # Nor does it get another one, neither beside the holder nor between two of its sessions.
    frozen.leave()
    for _ in range(2):
        with pytest.raises(DeviceLostError, match="the lease 7 is over"):
            frozen.open()
        holder.leave()
    holder.assert_serves()


@pytest.mark.exhaustive
def test_two_processes_of_one_lease_take_turns(hold: Hold) -> None:
    first, second = hold(7), hold(7)
    first.open()
    with pytest.raises(DeviceLostError, match="not free"):
        second.open(connect_timeout_sec=5.0)
    assert first.is_alive()
    first.leave()
    second.assert_serves()
