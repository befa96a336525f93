"""The real farm of this machine: started, killed part by part, run beside another, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from farm_processes import command_line
from onnx_models import GraphBuilder
from waiting import wait_gone, wait_until

from tunefarm.client import Client, Job
from tunefarm.embedded import EmbeddedFarm, FarmEvent, FarmHome, FarmOptions
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError

MARKS = {
    "valkey": "valkey-server",
    "gateway": "tunefarm_workers.gateway",
    "api": "tunefarm_api",
    "worker": "tunefarm_workers.worker",
    "device": "tunefarm_workers.device",
}


class Farm:
    """A farm, its events, and its processes as the system sees them."""

    def __init__(self, home: Path) -> None:
        self.events: list[FarmEvent] = []
        # The peak of this machine keeps all cores busy, and nothing here is about it.
        options = FarmOptions(settings={"PEAK_EVERY_SEC": "0"})
        self.handle = EmbeddedFarm(home, options, on_event=self.events.append)

    def supervisor(self) -> psutil.Process:
        (supervisor,) = [
            child
            for child in psutil.Process().children()
            if f"--home={self.handle.home.path} " in command_line(child)
        ]
        return supervisor

    def part(self, name: str) -> psutil.Process:
        """Return the part's process, or the next one while it is restarted."""
        children: list[psutil.Process] = []

        def is_there() -> bool:
            children[:] = [c for c in self.supervisor().children() if MARKS[name] in command_line(c)]
            return len(children) == 1

        wait_until(is_there, f"the {name}'s process")
        return children[0]

    def count(self, kind: str, part: str) -> int:
        return sum(event.kind == kind and event.part == part for event in self.events)

    def get(self, path: str) -> Any:
        with httpx.Client(trust_env=False, timeout=60) as client:
            answer = client.get(
                f"{self.handle.url}{path}", headers={"Authorization": f"Bearer {self.handle.api_key}"}
            )
        return answer.raise_for_status().json()

    def expect_device_online(self) -> None:
        """Wait for a sign of life, which is late on a busy machine."""
        wait_until(lambda: self.device_state() == "online", "the device to be online")

    def device_state(self) -> str:
        try:
            (device,) = self.get("/v1/devices")["items"]
        except httpx.HTTPError:
            return "unknown"
        return str(device["state"])


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    farm = Farm(tmp_path_factory.mktemp("farm") / "home")
    with farm.handle:
        farm.handle.wait_ready()
        yield farm


def test_a_farm_is_up_and_private(farm: Farm) -> None:
    farm.expect_device_online()
    home = farm.handle.home
    assert stat.S_IMODE(home.key_file.stat().st_mode) == 0o600
    for path in [home.path, *home.path.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # a farm at work writes files that do not stay
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    for name in MARKS:
        for connection in farm.part(name).net_connections(kind="inet"):
            assert connection.laddr.ip in ("127.0.0.1", "::1"), name


def test_its_folder_says_where_it_is(farm: Farm) -> None:
    running = FarmHome(farm.handle.home.path).running()
    assert running is not None
    assert (running.url, running.api_key) == (farm.handle.url, farm.handle.api_key)
    assert running.pid == farm.supervisor().pid


def test_the_doctor_finds_nothing(farm: Farm) -> None:
    farm.expect_device_online()
    seen: list[subprocess.CompletedProcess[str]] = []

    def finds_nothing() -> bool:
        seen[:] = [
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "tunefarm.cli.main",
                    "doctor",
                    "--json",
                    f"--home={farm.handle.home.path}",
                ],
                env={name: value for name, value in os.environ.items() if not name.startswith("TUNEFARM_")},
                capture_output=True,
                text=True,
                check=False,
            )
        ]
        return seen[0].returncode == 0

    # A busy machine can be late with a sign of life, and that is told.
    wait_until(finds_nothing, lambda: f"a farm that nothing is wrong with: {seen}")
    diagnosis = json.loads(seen[0].stdout)
    assert [row for row in diagnosis["checks"] if row["verdict"] == "failed"] == []
    assert diagnosis["ok"] is True
    messages = {row["check"]: row["message"] for row in diagnosis["checks"]}
    assert "answers" in messages["gateway"]
    assert messages["broker"] == "answers"


def test_no_second_farm_in_the_same_folder(farm: Farm) -> None:
    with pytest.raises(ConflictError, match="runs in") as caught, EmbeddedFarm(farm.handle.home.path):
        pass
    assert caught.value.code == "farm-running"
    farm.expect_device_online()


@pytest.mark.matrix(every=5, each_value=False)
@pytest.mark.parametrize("name", list(MARKS))
def test_a_killed_part_comes_back_on_its_port(farm: Farm, name: str) -> None:
    before = farm.part(name)
    below = before.children(recursive=True)
    listening = {c.laddr.port for c in before.net_connections(kind="inet") if c.status == "LISTEN"}
    ups = farm.count("up", name)
    before.kill()
    wait_until(lambda: farm.count("up", name) > ups, f"the {name}'s return")
    after = farm.part(name)
    assert after.pid != before.pid
    assert listening == {c.laddr.port for c in after.net_connections(kind="inet") if c.status == "LISTEN"}
    wait_gone((process.pid for process in below), "the old one's children")
    farm.expect_device_online()


@pytest.mark.exhaustive
def test_two_farms_side_by_side(farm: Farm, tmp_path: Path) -> None:
    other = Farm(tmp_path / "other")
    with other.handle:
        other.handle.wait_ready()
        assert other.handle.url != farm.handle.url
        assert other.handle.api_key != farm.handle.api_key
        farm.expect_device_online()
        other.expect_device_online()
        everything = other.supervisor().children(recursive=True)
        key = other.handle.api_key
    wait_gone((process.pid for process in everything), "everything")
    assert FarmHome(tmp_path / "other").running() is None
    farm.expect_device_online()
    # The next start goes on where this one ended.
    with other.handle.__class__(tmp_path / "other") as again:
        assert again.api_key == key
    assert psutil.pid_exists(farm.supervisor().pid)


def test_a_port_that_is_taken_is_named_before_anything_starts(farm: Farm, tmp_path: Path) -> None:
    port = int(farm.handle.url.rpartition(":")[2])
    events: list[FarmEvent] = []
    with (
        pytest.raises(ConflictError, match=rf"^port {port} of 127\.0\.0\.1 is taken: .*--port 0") as caught,
        EmbeddedFarm(tmp_path, FarmOptions(port=port), on_event=events.append),
    ):
        pass
    assert caught.value.code == "port-taken"
    assert not [event for event in events if event.kind in ("starting", "died")]


def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(
            InvalidInputError, match=r"^--host 192\.0\.2\.1 is not an address of this machine"
        ) as caught,
        EmbeddedFarm(tmp_path, FarmOptions(host="192.0.2.1")),
    ):
        pass
    assert caught.value.code == "not-own-address"


OWNER = """
import sys
from pathlib import Path
from tunefarm.embedded import EmbeddedFarm
with EmbeddedFarm(Path(sys.argv[1])) as farm:
    farm.wait_ready()
    print(farm.url, flush=True)
    farm.wait()
"""


@pytest.mark.parametrize("victim", ["supervisor", pytest.param("owner", marks=pytest.mark.exhaustive)])
def test_nothing_is_left_after_a_kill(tmp_path: Path, victim: str) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline().startswith(b"http://")
        process = psutil.Process(owner.pid)
        # Supervisor, five parts, two pool children and their tracker, and the RPC server at least.
        everything = wait_until(
            lambda: (children := process.children(recursive=True)) and len(children) >= 9 and children,
            "all of the farm's processes",
        )
        (supervisor,) = process.children()
        os.kill(owner.pid if victim == "owner" else supervisor.pid, signal.SIGKILL)
        wait_gone((part.pid for part in everything), "everything")
        owner.kill()
    assert FarmHome(tmp_path).running() is None


@pytest.mark.exhaustive  # minutes on a busy machine; tests of app/test_tvm_engine.py prove most of it
def test_a_network_is_timed_before_its_search_ends(tmp_path: Path) -> None:
    """Across real processes: the worker compiles drafts beside its search, and times them on this machine's device."""
    path = tmp_path / "mlp.onnx"
    graph = GraphBuilder()
    x = graph.input("x", [1, 64])
    hidden = graph.node("Relu", graph.node("MatMul", x, graph.weight(64, 96)))
    graph.output(graph.node("MatMul", hidden, graph.weight(96, 16)), [1, 16])
    path.write_bytes(graph.model().SerializeToString())
    settings = {"NETWORK_TIMING_AFTER_SEC": "0", "NETWORK_TIMING_SHARE": "0.5", "ROUND_SIZE": "4"}
    with EmbeddedFarm(tmp_path / "home", FarmOptions(settings=settings)) as farm:
        farm.wait_ready()
        with Client(farm.url, farm.api_key) as client:
            model = client.models.wait(client.models.upload(path).id)
            job = client.jobs.create(model.id, trials=100_000)
            seen: list[Job] = []

            def is_timed() -> bool:
                seen[:] = [client.jobs.get(job.id)]
                assert seen[0].state in ("queued", "extracting", "tuning"), seen[0]
                return bool(seen[0].networks)

            # A draft takes what nobody else wants, which is little on a busy machine.
            wait_until(is_timed, lambda: f"a network that was timed: {seen}", within_sec=900)
            (timed, *_) = seen[0].networks
            assert seen[0].network_latency_sec == min(each.latency_sec for each in seen[0].networks)
            assert timed.device is not None
            assert timed.latency_sec < 1
            assert "an estimate" not in seen[0].latency_text
            client.jobs.cancel(job.id)
