"""Real trackers, RPC servers and TVM clients on free ports; they end with each test."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from device_processes import AgentProcess, Child, ServerProcess, TrackerProcess, compile_kernels
from gateway_client import LeaseHolder
from gateway_process import GatewayProcess
from rpc_client import Client, steady

from tunefarm_app.identity.authority import device_identity, ensure_authority
from tunefarm_tuning.process import ChildProcess

Hold = Callable[[str, int], LeaseHolder]


@pytest.fixture
def start() -> Iterator[Callable[[type[Child] | Callable[..., Child]], Any]]:
    """Start children; all are ended after the test, the last first."""
    children: list[Child] = []

    def go(kind: Callable[..., Child], *args: Any, **kwargs: Any) -> Child:
        children.append(kind(*args, **kwargs))
        return children[-1]

    yield go
    for child in reversed(children):
        child.close()


@pytest.fixture(scope="session")
def standing_trackers() -> Iterator[list[TrackerProcess]]:
    """Trackers that tests share, since importing TVM is most of a tracker's cost."""
    standing: list[TrackerProcess] = []
    yield standing
    for tracker in standing:
        tracker.close()


@pytest.fixture
def tracker(standing_trackers: list[TrackerProcess]) -> Iterator[TrackerProcess]:
    """A tracker that a test may do with as it likes. Whatever is known there is known by keys of other tests."""
    process = standing_trackers.pop() if standing_trackers else TrackerProcess()
    yield process
    if process.process.poll() is None and psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        standing_trackers.append(process)
    else:
        process.close()


@pytest.fixture
def start_tracker(start: Callable[..., Any]) -> Callable[..., Any]:
    return lambda port=None: start(TrackerProcess, port)


@pytest.fixture
def rpc_key() -> str:
    return f"dev-{uuid4().hex}"


@pytest.fixture
def start_server(start: Callable[..., Any], tmp_path: Path, rpc_key: str) -> Callable[..., ServerProcess]:
    return lambda tracker_port, *options: start(
        ServerProcess, tracker_port, tmp_path / "sessions", rpc_key, *options
    )


@pytest.fixture
def server(start_server: Callable[..., ServerProcess], tracker: TrackerProcess) -> ServerProcess:
    return start_server(tracker.port)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of kernels of every temper, as TVM's runtime calls them."""
    return compile_kernels(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="session")
def caller() -> Iterator[ChildProcess]:
    """A process that has imported TVM; when it had to be given up, the next call starts another one."""
    with steady() as child:
        yield child


@pytest.fixture
def make_client(kernels: Path, rpc_key: str, caller: ChildProcess) -> Callable[..., Client]:
    return lambda tracker_port, key=rpc_key: Client(tracker_port, kernels, key, caller)


@pytest.fixture
def client(tracker: TrackerProcess, make_client: Callable[..., Client]) -> Client:
    return make_client(tracker.port)


class FarmApi:
    """The routes that an agent uses, served over HTTP, with the answers in the test's hand.

    Attributes:
        certificate_days: How long certificates are valid.
        certified: The devices that got one, in order.
    """

    def __init__(self, gateway: GatewayProcess) -> None:
        self.gateway = gateway
        self.certificate_days = 1.0
        self.certified: list[str] = []
        self.devices: dict[str, dict[str, Any]] = {}
        self.heartbeats: list[dict[str, Any]] = []
        self.registrations: list[dict[str, Any]] = []
        self.status = 200
        self._count = itertools.count(1)
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = api.answer(self.path, self.headers["Authorization"], body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path: str, authorization: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.status != 200:
            return self.status, {"detail": "as the test wants it"}
        if authorization != "Bearer tfk_test":
            return 401, {"detail": "no such key"}
        if path == "/v1/devices":
            self.registrations.append(body)
            known = self.devices.get(body["name"])
            device_id = known["id"] if known else f"dev_{next(self._count)}"
            self.devices[body["name"]] = {**body, "id": device_id}
            return 200, self.devices[body["name"]]
        device_id = path.split("/")[3]
        if device_id not in [device["id"] for device in self.devices.values()]:
            return 404, {"detail": "there is no such device"}
        if path.endswith("/certificate"):
            return self._certify(device_id, body)
        self.heartbeats.append(body)
        return 200, {}

    def _certify(self, device_id: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        authority = ensure_authority(self.gateway.folder)
        identity = device_identity(device_id, body["rpc_key"])
        certificate = authority.certify_device(
            body["certificate_request"], identity, days=self.certificate_days
        )
        self.certified.append(identity)
        where = {"host": "", "port": self.gateway.port}
        return 200, {**where, "certificate": certificate, "authority": authority.certificate}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def gateway(start: Callable[..., Any], tmp_path: Path) -> GatewayProcess:
    process: GatewayProcess = start(GatewayProcess, tmp_path / "keys")
    return process


@pytest.fixture
def by_gateway(gateway: GatewayProcess) -> dict[str, Any]:
    """Settings of a farm whose devices dial this gateway."""
    return {"gateway": f"127.0.0.1:{gateway.port}", "gateway_dir": gateway.folder}


@pytest.fixture
def api(gateway: GatewayProcess) -> Iterator[FarmApi]:
    with closing(FarmApi(gateway)) as farm:
        yield farm


@pytest.fixture
def start_agent(start: Callable[..., Any], api: FarmApi, tmp_path: Path) -> Callable[..., Any]:
    return lambda *options, **kwargs: start(AgentProcess, api.url, tmp_path / "device", *options, **kwargs)


@pytest.fixture
def join(start: Callable[..., Any], tmp_path: Path) -> Callable[..., AgentProcess]:
    """Start an agent that has no key, unless one is given: at that URL, with these options."""
    return lambda url, *options, **more: start(
        AgentProcess, url, tmp_path / "device", *options, **{"key": "", **more}
    )


@pytest.fixture
def agent(start_agent: Callable[..., Any]) -> AgentProcess:
    process: AgentProcess = start_agent()
    return process


@pytest.fixture
def holding(gateway: GatewayProcess, kernels: Path) -> Iterator[Hold]:
    """Return who holds a device, by what the gateway calls it, under a lease of that number."""
    with ExitStack() as stack:
        yield lambda device, fence: stack.enter_context(closing(LeaseHolder(gateway, device, fence, kernels)))


@pytest.fixture
def hold(api: FarmApi, agent: AgentProcess, holding: Hold) -> Callable[[int], LeaseHolder]:
    """Return who holds the agent's device under a lease of that number."""

    def make(fence: int) -> LeaseHolder:
        agent.wait_online()
        return holding(api.certified[-1], fence)

    return make
