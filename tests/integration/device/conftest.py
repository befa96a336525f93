"""Real trackers, RPC servers and TVM clients, on free ports, gone after each test."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from parentage import die_with_parent
from rpc_client import PATIENCE_SEC, Client
from waiting import gone, wait_until


class Child:
    """A process that writes JSON lines; its whole process group goes with it."""

    def __init__(self, arguments: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (it takes no lock)
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.events.append(json.loads(line))

    @property
    def pid(self) -> int:
        return self.process.pid

    def named(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one.get("event") == event]

    def wait_for(self, event: str, count: int = 1) -> dict[str, Any]:
        return wait_until(
            lambda: self.named(event)[count - 1 : count], lambda: f"{count} x {event}; {self.events}"
        )[0]

    def end(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.process.wait(PATIENCE_SEC)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_SEC)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._reader.join(PATIENCE_SEC)
        assert self.process.stdout is not None
        self.process.stdout.close()


class TrackerProcess(Child):
    def __init__(self, port: int = 0) -> None:
        super().__init__(["-m", "tunefarm_workers.tracker", "--port", str(port)])
        self.port: int = wait_until(lambda: self.events, "the tracker's port")[0]["port"]


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


@pytest.fixture
def tracker(start: Callable[..., Any]) -> TrackerProcess:
    process: TrackerProcess = start(TrackerProcess)
    return process


@pytest.fixture
def start_tracker(start: Callable[..., Any]) -> Callable[..., Any]:
    return lambda port=0: start(TrackerProcess, port)


class ServerProcess(Child):
    """A hardened server on its own."""

    key = "dev-test"

    def __init__(self, tracker_port: int, work_dir: Path, *options: str) -> None:
        self.work_dir = work_dir
        super().__init__(
            [
                "-m",
                "tunefarm_workers.device.hardened_server",
                *("--key", self.key, "--tracker", f"127.0.0.1:{tracker_port}"),
                *("--work-dir", str(work_dir), *options),
            ],
            env={"TVM_NUM_THREADS": "1"},
        )
        self.port: int = self.wait_for("listening")["port"]

    def session_folders(self) -> list[Path]:
        return list(self.work_dir.glob("session-*"))

    def wait_childless(self) -> None:
        """Wait until nothing runs below it: what was killed needs a moment to be gone."""
        wait_until(
            lambda: all(gone(child.pid) for child in psutil.Process(self.pid).children(recursive=True)),
            "the end of all sessions' processes",
        )


@pytest.fixture
def server(start: Callable[..., Any], tracker: TrackerProcess, tmp_path: Path) -> ServerProcess:
    process: ServerProcess = start(ServerProcess, tracker.port, tmp_path / "sessions")
    return process


@pytest.fixture
def start_server(start: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    return lambda tracker_port, *options: start(ServerProcess, tracker_port, tmp_path / "sessions", *options)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of kernels of every temper, as TVM's runtime calls them."""
    folder = tmp_path_factory.mktemp("kernels")
    source, library = folder / "kernels.c", folder / "kernels.so"
    source.write_text(
        """
        #include <fcntl.h>
        #include <signal.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <unistd.h>
        #define KERNEL(name) int __tvm_ffi_##name(void *self, const void *args, int32_t n, void *result)
        KERNEL(good) { return 0; }
        KERNEL(crash) { raise(SIGSEGV); return 0; }
        KERNEL(leave) { exit(7); }
        KERNEL(spin) { close(creat("spinning", 0600)); for (;;) sleep(1); }
        KERNEL(freeze) { raise(SIGSTOP); return 0; }
        KERNEL(litter) { if (fork() == 0) { setsid(); if (fork() == 0) for (;;) sleep(1); _exit(0); } return 0; }
        """
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


@pytest.fixture
def client(tracker: TrackerProcess, kernels: Path) -> Client:
    return Client(tracker.port, kernels, ServerProcess.key)


@pytest.fixture
def make_client(kernels: Path) -> Callable[..., Client]:
    return lambda tracker_port, key=ServerProcess.key: Client(tracker_port, kernels, key)


class FarmApi:
    """The two routes that an agent uses, served over HTTP, with the answers in the test's hand."""

    def __init__(self, tracker_port: int) -> None:
        self.tracker_port = tracker_port
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
            self.devices[body["name"]] = {
                **body,
                "id": device_id,
                "tracker_host": "127.0.0.1",
                "tracker_port": self.tracker_port,
            }
            return 200, self.devices[body["name"]]
        device_id = path.split("/")[3]
        if device_id not in [device["id"] for device in self.devices.values()]:
            return 404, {"detail": "there is no such device"}
        self.heartbeats.append(body)
        return 200, {}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def api(tracker: TrackerProcess) -> Iterator[FarmApi]:
    farm = FarmApi(tracker.port)
    yield farm
    farm.close()


class AgentProcess(Child):
    def __init__(
        self,
        url: str,
        work_dir: Path,
        *options: str,
        key: str = "tfk_test",
        module: str = "tunefarm_workers.device",
        env: dict[str, str] | None = None,
    ) -> None:
        self.work_dir = work_dir
        super().__init__(
            [
                *("-m", module, "--url", url, "--name", "box", "--device-key", "test"),
                *("--target", "llvm -num-cores=1", "--device-model", "test-box", "--heartbeat-sec", "1"),
                *("--work-dir", str(work_dir), *options),
            ],
            env={"TUNEFARM_API_KEY": key, **(env or {})},
        )

    @property
    def rpc_key(self) -> str:
        return str(self.events[-1]["rpc_key"])

    def wait_online(self, after: int = 0, other_than: int | None = None) -> dict[str, Any]:
        """Wait for a proof of life later than the first `after` events, of another server than that process."""
        online = wait_until(
            lambda: [
                event
                for event in self.events[after:]
                # When a server dies, the API still has its last heartbeat: online, and yet not serving.
                if event.get("online") and event["state"] == "serving" and event["server_pid"] != other_than
            ],
            lambda: f"online; {self.events}",
        )
        return dict(online[-1])


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
