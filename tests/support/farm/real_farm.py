"""A soak's farm that compiles and measures: TVM, a gateway, and this machine as its device."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil
from device_processes import AgentProcess
from gateway_process import GatewayProcess
from onnx_models import GraphBuilder
from soak_farm import SoakFarm, soak_farm
from waiting import gone

from tunefarm_db.values import Device, Step


class Door(Protocol):
    """A gateway that runs: its port, and the folder of the farm's keys."""

    @property
    def port(self) -> int: ...

    @property
    def folder(self) -> Path: ...


@dataclass(frozen=True)
class RealFarm:
    """See the module; `real_farm` makes one."""

    farm: SoakFarm
    agent: AgentProcess

    def device(self) -> Device:
        with self.farm.services.uow.read() as repos:
            (device,) = repos.devices.in_pool("test")
        return device

    def server(self) -> psutil.Process:
        """Return the RPC server that serves now."""
        return psutil.Process(self.agent.wait_online()["server_pid"])

    def session(self) -> psutil.Process | None:
        """Return the process in which kernels run now, if there is one."""
        pid = self.agent.events[-1].get("server_pid")
        if pid is None or gone(pid):
            return None
        try:
            return next(iter(psutil.Process(pid).children()), None)
        except psutil.NoSuchProcess:
            return None

    def measuring(self) -> Step | None:
        """Return the round that the device is held for, if it is for one."""
        owner = self.device().lease_owner or ""
        return next((step for step in self.farm.leased() if owner == f"step:{step.id}"), None)

    def leave(self) -> None:
        """Take the device away in good order, as comes before an audit; nothing is left of it."""
        self.agent.end(signal.SIGTERM)
        assert self.agent.process.returncode == 0
        assert list((self.agent.work_dir / "sessions").iterdir()) == []


def network() -> bytes:
    """Return a model of one kernel, with a space of many thousand configs."""
    graph = GraphBuilder()
    graph.output(graph.node("MatMul", graph.input("x", [64, 128]), graph.weight(128, 256)), [64, 256])
    data: bytes = graph.model().SerializeToString()
    return data


@contextmanager
def real_farm(
    folder: Path,
    *,
    module: str = "tunefarm_workers.device",
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    python: str = sys.executable,
    gateway: Door | None = None,
    **settings: Any,
) -> Iterator[RealFarm]:
    """Start the farm for the time of the block.

    Args:
        folder: For all that it writes.
        module: What to run as the agent.
        environment: More of the agent's environment.
        options: More of its options.
        python: What to run it with.
        gateway: What the device dials; without one, one is started.
        settings: As of `soak_farm`.
    """
    own = None if gateway is not None else GatewayProcess(folder / "keys")
    door = gateway or own
    assert door is not None
    chosen = {
        "engine": "tvm",
        "gateway": f"127.0.0.1:{door.port}",
        "gateway_dir": door.folder,
        "device_stale_sec": 30.0,
        "build_workers": 1,
        "calibrate_every_sec": 3600.0,
        "calibrate_retry_sec": 0.5,
        "peak_every_sec": 0.0,
        **settings,
    }
    url = f"sqlite:///{folder / 'tunefarm.db'}"
    try:
        with soak_farm(folder / "farm", url, workers=1, devices=0, reconcile=False, **chosen) as farm:
            farm.start_api()
            farm.wait_for_api()
            agent = AgentProcess(
                farm.api_url,
                folder / "device",
                *options,
                key=farm.api_key,
                module=module,
                python=python,
                env={**farm.environment, **(environment or {})},
            )
            try:
                agent.wait_online()
                yield RealFarm(farm, agent)
            finally:
                agent.close()
    finally:
        if own is not None:
            own.close()
