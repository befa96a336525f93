"""The agent on an emulated Arm board stays on the farm, whatever process dies or freezes: the twins of what holds on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from device_processes import AgentProcess, compile_kernels
from emulated_arm import ARM_COMPILER, CORTEX_A72, ArmMachine, emulated_machine
from gateway_client import LeaseHolder
from gateway_process import GatewayProcess
from repository import ROOT
from waiting import wait_gone, wait_until

from tunefarm_tuning.core.errors import DeviceLostError

from .conftest import FarmApi


@pytest.fixture(scope="module")
def machine() -> ArmMachine:
    return emulated_machine(CORTEX_A72)


@pytest.fixture(scope="module")
def kernels(machine: ArmMachine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_kernels(tmp_path_factory.mktemp("kernels"), ARM_COMPILER)


@pytest.fixture
def agent(start_agent: Callable[..., Any], machine: ArmMachine) -> AgentProcess:
    process: AgentProcess = start_agent(
        *("--target", "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu -num-cores=1"),
        python=str(machine.python),
        env=machine.environment,
    )
    return process


@pytest.fixture
def holder(
    gateway: GatewayProcess, api: FarmApi, agent: AgentProcess, kernels: Path
) -> Iterator[LeaseHolder]:
    """Who holds the device under a lease."""
    agent.wait_online()
    with closing(LeaseHolder(gateway, api.certified[-1], 1, kernels)) as worker:
        yield worker


def test_a_killed_and_a_frozen_server_come_back(agent: AgentProcess, holder: LeaseHolder) -> None:
    first = agent.wait_online()["server_pid"]
    holder.open()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not holder.is_alive(), "the end of the session")
    holder.leave()
    second = agent.wait_online(other_than=first)["server_pid"]
    holder.assert_serves()

    seen = len(agent.events)
    os.kill(second, signal.SIGSTOP)
    wait_gone([second], "the frozen server")
    agent.wait_online(after=seen, other_than=second)
    holder.assert_serves()


@pytest.mark.exhaustive
def test_crashing_and_endless_kernels_do_not_cost_the_server(
    agent: AgentProcess, holder: LeaseHolder
) -> None:
    first = agent.wait_online()["server_pid"]
    for kernel in ("crash", "leave"):
        holder.open()
        with pytest.raises(Exception, match=r".+"):
            holder.run(kernel)
        assert not holder.is_alive()
        holder.leave()
        holder.assert_serves()
    holder.open(timeout_sec=2.0)
    with pytest.raises(Exception, match="RPCSessionTimeoutError"):
        holder.run("spin")
    holder.leave()
    holder.assert_serves()
    assert psutil.pid_exists(first)


@pytest.mark.exhaustive
def test_a_killed_agent_is_a_lost_device_and_nothing_of_it_stays(
    agent: AgentProcess, holder: LeaseHolder
) -> None:
    holder.open()
    holder.start("spin")
    wait_until(lambda: list((agent.work_dir / "sessions").glob("*/spinning")), "the kernel")
    below = psutil.Process(agent.pid).children(recursive=True)
    assert below
    agent.end(signal.SIGKILL)
    with pytest.raises(Exception, match=r".+"):
        holder.child.finish_call(timeout_sec=60.0)
    assert not holder.is_alive()
    wait_gone((process.pid for process in below), "everything")
    holder.leave()
    with pytest.raises(DeviceLostError, match="not connected"):
        holder.open(connect_timeout_sec=10.0)


@pytest.mark.exhaustive
def test_a_board_without_tvms_compiler_knows_what_it_is_and_serves(
    start_agent: Callable[..., Any],
    api: FarmApi,
    gateway: GatewayProcess,
    machine: ArmMachine,
    kernels: Path,
    tmp_path: Path,
) -> None:
    board = machine.copy_to(tmp_path / "board")
    said = board.run("-m", "tunefarm", "device", "trim")
    target = "llvm -mattr=-aes -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu"
    assert f"This machine is {target}" in said
    assert "26" in said.split(" MB removed")[0], "240 MB of the compiler, and sources"
    assert not list((tmp_path / "board" / "site-packages" / "tvm").rglob("*compiler.so"))
    site = (tmp_path / "board" / "site-packages").resolve()
    installed = [Path(folder, name) for folder, _, names in os.walk(site, followlinks=True) for name in names]
    installed += [
        path for source in ("tuning", "services", "workers") for path in (ROOT / source).rglob("*.py")
    ]
    assert sum(path.stat().st_size for path in installed) < 200e6, (
        "with byte code, if this Python can make it"
    )
    agent = start_agent("--target", "host", python=str(board.python), env=board.environment)
    agent.wait_online()
    registered = api.registrations[-1]["target"]
    assert {**registered, "num-cores": 0} == {
        "kind": "llvm",
        "mcpu": "cortex-a72",
        "mattr": ["-aes"],
        "mtriple": "aarch64-linux-gnu",
        "num-cores": 0,
    }
    with closing(LeaseHolder(gateway, api.certified[-1], 1, kernels)) as worker:
        worker.assert_serves()
