"""A real device whose RPC server repeatedly meets everything that ends TVM's own."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import cycle, islice
from pathlib import Path

import psutil
import pytest
from device_processes import AgentProcess, compile_kernels
from gateway_client import LeaseHolder
from gateway_process import GatewayProcess
from malformed_hellos import HELLOS
from rpc_client import connect
from soak_audit import audit
from soak_farm import SoakFarm, soak_farm
from waiting import wait_until

from tunefarm_app.identity.authority import device_identity
from tunefarm_tuning.core.errors import TunefarmError

# crashing kernels, malformed hellos, silent peers, seconds without a gateway
SIZES = {"small": (4, 10, 5, 3.0), "middle": (20, 50, 5, 20.0), "big": (50, 100, 5, 75.0)}


class Abuser:
    """Calls kernels of a device, and measures how long a good one takes after the last misdeed."""

    def __init__(self, gateway: GatewayProcess, agent: AgentProcess, kernels: Path) -> None:
        device = device_identity(agent.events[-1]["device_id"], agent.rpc_key)
        self._holder = LeaseHolder(gateway, device, 1, kernels)
        self.usable_after_sec: dict[str, float] = {}
        self.call("good")  # the child imports TVM

    def call(self, kernel: str) -> None:
        """Call a kernel in a session of its own."""
        self._holder.open()
        try:
            self._holder.run(kernel)
        finally:
            self._holder.leave()

    def expect_use(self, after: str) -> None:
        """A good kernel runs; note the longest time that it ever took after the same misdeed."""
        began = time.monotonic()
        self.call("good")
        took_sec = round(time.monotonic() - began, 2)
        self.usable_after_sec[after] = max(took_sec, self.usable_after_sec.get(after, 0.0))

    def close(self) -> None:
        self._holder.close()


@contextmanager
def lent(farm: SoakFarm, folder: Path) -> Iterator[AgentProcess]:
    """Lend this machine to the farm for the time of the block."""
    agent = AgentProcess(farm.api_url, folder, key=farm.api_key, env=farm.environment)
    try:
        agent.wait_online()
        yield agent
        agent.end(signal.SIGTERM)
        assert agent.process.returncode == 0
        assert list((folder / "sessions").iterdir()) == []
    finally:
        agent.close()


@pytest.mark.exhaustive
def test_a_device_is_usable_again_after_each(tmp_path: Path, size: str, report: Callable[..., None]) -> None:
    crashes, hellos, silent, outage_sec = SIZES[size]
    kernels = compile_kernels(tmp_path)
    url = f"sqlite:///{tmp_path / 'tunefarm.db'}"
    with ExitStack() as gateways:
        gateway = GatewayProcess(tmp_path / "keys")
        gateways.callback(gateway.close)
        settings = {"gateway": f"127.0.0.1:{gateway.port}", "gateway_dir": gateway.folder}
        with soak_farm(tmp_path / "farm", url, workers=0, devices=0, reconcile=False, **settings) as farm:
            farm.start_api()
            farm.wait_for_api()
            with lent(farm, tmp_path / "device") as agent, closing(Abuser(gateway, agent, kernels)) as abuser:
                server = psutil.Process(agent.wait_online()["server_pid"])
                for _ in range(crashes):
                    with pytest.raises(TunefarmError):
                        abuser.call("crash")
                    abuser.expect_use("a crash")
                assert listening_ports(server) == set()  # whoever is no worker finds the gateway alone
                for data in islice(cycle(HELLOS.values()), hellos):
                    with connect(gateway.port) as connection:
                        connection.sendall(data)
                    abuser.expect_use("a malformed hello")
                with ExitStack() as peers:
                    for _ in range(silent):
                        peers.enter_context(connect(gateway.port))
                    abuser.expect_use("silent peers")
                gateway.end()
                wait_until(lambda: agent.events[-1]["state"] != "serving", "the agent's notice")
                time.sleep(outage_sec)
                away = len(agent.events)
                gateway = GatewayProcess(gateway.folder, gateway.port)
                gateways.callback(gateway.close)
                # It is the server that was there at the beginning.
                assert agent.wait_online(after=away)["server_pid"] == server.pid
                abuser.expect_use("an outage of the gateway")
                # The last session's process ends a moment after its client has gone.
                wait_until(lambda: not server.children(recursive=True), "the end of every session")
            figures = audit(
                farm,
                trials=0,
                crashes=crashes,
                hellos=hellos,
                silent=silent,
                outage_sec=outage_sec,
                usable_after_sec=abuser.usable_after_sec,
            )
        report(figures)


def listening_ports(process: psutil.Process) -> set[int]:
    return {
        connection.laddr.port
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
