"""A machine with several GPUs: each is a device. A file gives the driver's answers; the rest is real."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from nvml_answers import Driver, uuid
from replay_server import ReplayServer, replay_server
from waiting import wait_gone, wait_until

from tunefarm_app.devices.commands import remove_device
from tunefarm_app.devices.enrolment import create_enrolment_token, enrol_devices
from tunefarm_app.identity.authority import device_identity
from tunefarm_app.operations.device_checks import check_devices
from tunefarm_db.values import Device, DeviceState
from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS

from .conftest import Hold


@pytest.fixture
def server(tmp_path: Path, by_gateway: dict[str, Any]) -> Iterator[ReplayServer]:
    folder = tmp_path / "server"
    folder.mkdir()
    with replay_server(folder, **by_gateway) as server:
        yield server


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    driver = Driver(tmp_path / "nvml.json")
    driver.has("H100", "H100")
    return driver


@pytest.fixture
def lend(join: Callable[..., Any], server: ReplayServer, driver: Driver) -> Callable[..., Any]:
    environment = {ANSWERS: str(driver.path)}
    return lambda *options: join(server.url, "--target=cuda", *options, env=environment)


def devices(server: ReplayServer) -> dict[str, Device]:
    with server.services.uow.read() as repos:
        return {device.name: device for device in repos.devices.list(limit=10).items}


def online(server: ReplayServer, *names: str) -> dict[str, Device]:
    def look() -> dict[str, Device]:
        known = devices(server)
        fine = all(name in known and known[name].state is DeviceState.ONLINE for name in names)
        return known if fine else {}

    return wait_until(look, lambda: f"{names} online; {devices(server)}")


def agents(machine: Any) -> dict[str, psutil.Process]:
    """Return the process of each GPU's agent, by the device's name."""
    by_name = {}
    for process in psutil.Process(machine.pid).children():
        with contextlib.suppress(psutil.Error):  # it is dying
            words = process.cmdline()
            by_name.update(
                {word.removeprefix("--name="): process for word in words if word.startswith("--name=")}
            )
    return by_name


def rpc_server_of(agent: psutil.Process) -> psutil.Process:
    """Return an agent's RPC server."""
    servers: list[psutil.Process] = []

    def is_there() -> bool:
        servers[:] = []
        for child in agent.children():
            with contextlib.suppress(psutil.Error):
                servers.extend([child] * any("hardened_server" in word for word in child.cmdline()))
        return len(servers) == 1

    wait_until(is_there, "the RPC server of an agent")
    return servers[0]


@pytest.mark.exhaustive
def test_each_gpu_is_a_device(
    server: ReplayServer, lend: Callable[..., Any], driver: Driver, holding: Hold
) -> None:
    _, token = create_enrolment_token(server.services, device_key="test")
    machine = lend(f"--token={token}")
    by_name = online(server, "box-gpu0", "box-gpu1")
    assert sorted(by_name) == ["box-gpu0", "box-gpu1"]
    assert len({device.rpc_key for device in by_name.values()}) == 2
    for number, device in enumerate(by_name[name] for name in sorted(by_name)):
        assert device.target["arch"] == "sm_90"
        assert [gpu["uuid"] for gpu in device.info["gpus"]] == [uuid(number)]
        vitals = wait_until(
            lambda name=device.name: devices(server)[name].info["agent"].get("gpus"), "its temperature"
        )
        assert vitals[0]["temperature_celsius"] == 41.0 + number
        holding(device_identity(device.id, device.rpc_key), 1).assert_serves()

    def health() -> dict[str, Any]:
        return dict(json.loads((machine.work_dir / "state.json").read_text()))

    wait_until(lambda: health()["online"], "health checks to be told")
    assert health()["devices"] == {"box-gpu0": "serving", "box-gpu1": "serving"}

    # Its server sees its own GPU only, and not the farm's secrets.
    for number, (_, agent) in enumerate(sorted(agents(machine).items())):
        rpc_server = rpc_server_of(agent)
        environment = rpc_server.environ()
        assert environment["CUDA_VISIBLE_DEVICES"] == uuid(number)
        assert not [name for name in environment if name.startswith("TUNEFARM_")]
        assert token not in " ".join(agent.cmdline())

    # A lease of its own each, and both at once.
    with server.services.uow.write() as repos:
        leases = [lease for owner in ("a", "b") if (lease := repos.devices.lease("test", owner, 60.0))]
        assert repos.devices.lease("test", "c", 60.0) is None
        assert {lease.device.name for lease in leases} == set(by_name)
        for lease in leases:
            assert repos.devices.release_lease(lease.device.id, lease.fence)

    machine.end(signal.SIGTERM)
    assert machine.process.returncode == 0
    assert {device.state for device in devices(server).values()} == {DeviceState.OFFLINE}
    again = lend()
    online(server, "box-gpu0", "box-gpu1")
    again.end(signal.SIGTERM)


@pytest.mark.exhaustive
def test_a_gpu_that_another_keeps_busy_gets_no_lease(
    server: ReplayServer, lend: Callable[..., Any], driver: Driver
) -> None:
    _, token = create_enrolment_token(server.services, device_key="test")
    machine = lend(f"--token={token}")
    online(server, "box-gpu0", "box-gpu1")

    def at_work(pid: int, name: str) -> dict[str, Any]:
        return {"load": 97, "processes": [[pid, 1 << 30, f"/usr/bin/{name}"]], "process_loads": [[pid, 96]]}

    def is_out(name: str, reason: str) -> Callable[[], bool]:
        def look() -> bool:
            device = devices(server)[name]
            return device.state is DeviceState.OFFLINE and device.reason == reason

        return look

    # A stranger on the one, and our own server on the other.
    second_agent = agents(machine)["box-gpu1"]
    driver.answers_of(0, **at_work(os.getpid(), "train"))
    driver.answers_of(1, **at_work(rpc_server_of(second_agent).pid, "python3"))
    busy = f"busy: the GPU is used by train (pid {os.getpid()})"
    wait_until(is_out("box-gpu0", busy), lambda: f"the first to be busy; {devices(server)}")
    wait_until(
        lambda: devices(server)["box-gpu1"].info["agent"]["gpus"][0].get("processes"),
        "our own server to be seen on the second",
    )
    assert devices(server)["box-gpu1"].state is DeviceState.ONLINE
    finding = check_devices(server.services)
    assert busy in finding.message
    with server.services.uow.write() as repos:
        lease = repos.devices.lease("test", "a", 60.0)
        assert lease is not None
        assert lease.device.name == "box-gpu1"
        assert repos.devices.lease("test", "b", 60.0) is None

    driver.answers_of(0, load=0, processes=[], process_loads=[])
    online(server, "box-gpu0", "box-gpu1")
    with server.services.uow.write() as repos:
        freed = repos.devices.lease("test", "b", 60.0)
        assert freed is not None
        assert freed.device.name == "box-gpu0"

    driver.answers_of(0, temperature={"error": "NVML_ERROR_GPU_IS_LOST"})
    wait_until(is_out("box-gpu0", "the GPU has fallen off the bus"), "the first to be lost")


@pytest.mark.exhaustive
def test_what_takes_one_gpus_agent_down_leaves_the_other(
    server: ReplayServer, lend: Callable[..., Any]
) -> None:
    _, token = create_enrolment_token(server.services, device_key="test")
    machine = lend(f"--token={token}")
    before = online(server, "box-gpu0", "box-gpu1")
    first, second = (agent for _, agent in sorted(agents(machine).items()))
    its_server = rpc_server_of(first)
    first.kill()
    wait_gone([its_server.pid], "the killed agent's server")
    wait_until(
        lambda: devices(server)["box-gpu0"].rpc_key != before["box-gpu0"].rpc_key, "its next life at the farm"
    )
    after = online(server, "box-gpu0", "box-gpu1")
    assert after["box-gpu1"].rpc_key == before["box-gpu1"].rpc_key
    assert agents(machine)["box-gpu1"] == second

    # One that the farm does not take any more is left out, and when none is left, there is nothing to do.
    remove_device(server.services, before["box-gpu0"].id)
    agents(machine)["box-gpu0"].kill()
    wait_until(lambda: list(agents(machine)) == ["box-gpu1"], "the first to be left out")
    assert devices(server)["box-gpu1"].state is DeviceState.ONLINE
    remove_device(server.services, before["box-gpu1"].id)
    agents(machine)["box-gpu1"].kill()
    assert machine.process.wait(120) == 2


@pytest.mark.exhaustive
def test_a_new_token_in_its_file_brings_all_gpus_back(
    server: ReplayServer, lend: Callable[..., Any], tmp_path: Path
) -> None:
    """One credential ended, and its agent was refused; before, only a restart of the machine's agent made it read the file."""
    token_file = tmp_path / "token"
    token_file.write_text(create_enrolment_token(server.services, device_key="test")[1])
    machine = lend(f"--token-file={token_file}")
    online(server, "box-gpu0", "box-gpu1")
    for number, is_refused in ((0, False), (1, True)):
        elsewhere, _ = create_enrolment_token(server.services, device_name=f"box-gpu{number}")
        enrol_devices(server.services, elsewhere, names=[f"box-gpu{number}"], device_key="test")
        if is_refused:
            agents(machine)[f"box-gpu{number}"].kill()
            wait_until(lambda: list(agents(machine)) == ["box-gpu0"], "the second to be left out")

    def said(folder: Path) -> dict[str, Any]:
        return dict(json.loads((folder / "state.json").read_text()))

    wait_until(lambda: said(machine.work_dir / "gpu0")["key_ended"], "the first to notice")
    assert not said(machine.work_dir)["online"]
    token_file.write_text(create_enrolment_token(server.services, device_name="box")[1])
    wait_until(lambda: said(machine.work_dir)["online"], lambda: f"both to be back; {said(machine.work_dir)}")
    assert machine.process.poll() is None


@pytest.mark.exhaustive
def test_a_killed_machine_leaves_nothing(server: ReplayServer, lend: Callable[..., Any]) -> None:
    _, token = create_enrolment_token(server.services, device_key="test")
    machine = lend(f"--token={token}")
    online(server, "box-gpu0", "box-gpu1")
    members = list(agents(machine).values())
    below = [*members, *map(rpc_server_of, members)]
    assert len(below) == 4
    machine.end(signal.SIGKILL)
    wait_gone((process.pid for process in below), "everything")


def test_one_of_the_gpus(server: ReplayServer, lend: Callable[..., Any], driver: Driver) -> None:
    _, token = create_enrolment_token(server.services)
    lend(f"--token={token}", "--gpu=1", "--name=box-second")
    by_name = online(server, "box-second")
    assert list(by_name) == ["box-second"]
    assert by_name["box-second"].info["gpus"][0]["uuid"] == uuid(1)


@pytest.mark.exhaustive
def test_a_second_agent_of_the_machine_is_refused(server: ReplayServer, lend: Callable[..., Any]) -> None:
    _, token = create_enrolment_token(server.services)
    lend(f"--token={token}")
    online(server, "box-gpu0", "box-gpu1")
    assert lend().process.wait(120) == 2
