"""The compose file without containers: every service's command and environment, as a local process.

PostgreSQL and Valkey are the wheels'. What a container would have of its own is mapped: host names, ports, volumes.
Each process can write to its volumes alone, as with a read-only root. Then a job goes through.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from farm_processes import free_port
from private_postgres import RoledPostgres, roled_postgres
from repository import ROOT
from waiting import wait_gone, wait_until

from tunefarm.client import Client
from tunefarm.embedded import valkey

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PATIENCE_SEC = 240.0

sys.path.insert(0, str(ROOT / "examples"))


class Host:
    """One machine that plays all containers."""

    def __init__(self, folder: Path, server: RoledPostgres) -> None:
        self.folder = folder
        self.server = server
        self.ports = {"valkey:6379": free_port(), "gateway:9443": free_port(), "api:8000": free_port()}
        self.variables = {
            "POSTGRES_PASSWORD": secrets.token_hex(12),
            "POSTGRES_WORKER_PASSWORD": secrets.token_hex(12),
            "POSTGRES_ADMIN_PASSWORD": secrets.token_hex(12),
            "VALKEY_PASSWORD": secrets.token_hex(12),
            "VALKEY_WORKER_PASSWORD": secrets.token_hex(12),
            "TUNEFARM_PORT": "8000",
            "TUNEFARM_TRUSTED_PROXIES": "",
            "TUNEFARM_GATEWAY_FOR_DEVICES": "",
            "TUNEFARM_REQUIRE_SIGNATURES": "true",
            "TUNEFARM_QUEUE_MAXMEMORY": "384mb",
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        binaries = folder / "bin"
        binaries.mkdir()
        (binaries / "valkey-server").symlink_to(valkey.find_server())
        self.path = f"{binaries}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def map(self, service: str, text: str) -> str:
        """Interpolate as compose does, then put this machine in the place of the containers."""
        text = re.sub(r"(?<!\$)\$\{(\w+)[^}]*\}", lambda match: self.variables[match[1]], text)
        text = text.replace("$$", "$")
        text = re.sub(
            r"postgresql\+psycopg://(\w+):\w+@postgres:5432/tunefarm",
            lambda match: self.server.url_of(match[1]),
            text,
        )
        text = text.replace("0.0.0.0", "127.0.0.1").replace("dir /data\n", self._valkey_options())
        for address, port in self.ports.items():
            text = text.replace(address, f"127.0.0.1:{port}")
            text = re.sub(rf"\b{address.split(':')[1]}\b", str(port), text)
        mounted = self._mounts(service)
        for path in re.findall(r"/var/lib/tunefarm/\w+", text):
            # A folder that several services share must be a volume; the device's is its own.
            inside = any(folder.startswith(f"{path}/") for folder in mounted)
            assert path in mounted or inside or (service, path) == ("device", "/var/lib/tunefarm/device")
        return text.replace("/var/lib/tunefarm/", f"{self.folder}/")

    def _mounts(self, service: str) -> list[str]:
        """Return the folders of the container that are volumes."""
        return [volume.split(":")[1] for volume in SERVICES[service].get("volumes", []) if ":" in volume]

    def _writable(self, service: str) -> list[Path]:
        """Return, of this machine, what the container could write."""
        given = SERVICES[service]
        read_only = {volume.split(":")[1] for volume in given.get("volumes", []) if volume.endswith(":ro")}
        folders = [
            Path(self.map(service, path)) if path.startswith("/var/lib/tunefarm") else self.folder / service
            for path in self._mounts(service)
            if path not in read_only
        ]
        temporary = self.folder / f"tmp-{service}"
        if any(mount.startswith("/tmp") for mount in (*given.get("tmpfs", []), *given.get("volumes", []))):
            folders.append(temporary)
        temporary.mkdir(exist_ok=True)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folders

    def _valkey_options(self) -> str:
        (self.folder / "valkey").mkdir(exist_ok=True)
        return f"dir {self.folder}/valkey\nport {self.ports['valkey:6379']}\nbind 127.0.0.1\n"

    def environment(self, service: str) -> dict[str, str]:
        """Return the environment of the container, without this test's own variables."""
        variables = SERVICES[service].get("environment", {})
        return {
            "PATH": self.path,
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / f"tmp-{service}"),
            **{name: self.map(service, value) for name, value in variables.items()},
        }

    def start(self, service: str) -> None:
        assert SERVICES[service]["read_only"] is True
        command = [
            *(sys.executable, str(Path(__file__).with_name("read_only_root.py"))),
            os.pathsep.join(map(str, self._writable(service))),
            *(self.map(service, word) for word in SERVICES[service]["command"]),
        ]
        with (self.folder / f"{service}.log").open("wb") as log:
            self.processes[service] = subprocess.Popen(
                command,
                env=self.environment(service),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run_to_its_end(self, service: str) -> None:
        self.start(service)
        assert self.processes.pop(service).wait(PATIENCE_SEC) == 0, self.log(service)

    def wait_healthy(self, service: str) -> None:
        """Run the service's own health check until it passes."""
        kind, *command = SERVICES[service]["healthcheck"]["test"]
        assert kind == "CMD"
        arguments = [self.map(service, word) for word in command]

        def passes() -> bool:
            assert self.processes[service].poll() is None, self.log(service)
            done = subprocess.run(
                arguments, env=self.environment(service), cwd=self.folder, capture_output=True, timeout=60
            )
            return done.returncode == 0

        wait_until(passes, lambda: self.log(service), every_sec=1.0)  # each is a process

    def log(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text(errors="replace")[-4000:]

    def stop(self, service: str) -> int:
        """Stop as `docker stop` does; return the exit code."""
        process = self.processes.pop(service)
        process.terminate()
        return process.wait(PATIENCE_SEC)

    def close(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that is not in /dev, as those of other tests may be: every container can write to its own /dev."""
    with tempfile.TemporaryDirectory(prefix="tunefarm-compose-", dir="/var/tmp") as path:
        yield Path(path)


@pytest.fixture
def host(folder: Path) -> Iterator[Host]:
    with roled_postgres() as server:
        host = Host(folder, server)
        yield host
        host.close()


@pytest.mark.exhaustive
def test_a_job_goes_through_the_compose_file(host: Host, folder: Path) -> None:
    from tiny_convnet import build_tiny_mlp

    host.start("valkey")
    wait_until(
        lambda: valkey.answers(host.ports["valkey:6379"], host.variables["VALKEY_PASSWORD"]),
        lambda: host.log("valkey"),
    )
    host.run_to_its_end("migrate")
    for service in ("api", "worker", "gateway", "device"):
        for needed in SERVICES[service].get("depends_on", {}):
            assert needed in host.processes or needed in ("postgres", "migrate")
        host.start(service)
        host.wait_healthy(service)

    network = folder / "tiny.onnx"
    network.write_bytes(build_tiny_mlp().SerializeToString())
    key = (folder / "keys" / "api-key").read_text().strip()
    with Client(f"http://127.0.0.1:{host.ports['api:8000']}", key) as client:
        model = client.models.upload(network)
        client.models.wait(model.id)
        handle = client.job(client.jobs.create(model.id, device_key="cpu", trials=6).id)
        job = handle.wait(timeout_sec=600)
        assert job.state == "succeeded", (job.raw, host.log("worker"))
        trials = list(handle.trials())
        assert len(trials) >= 3
        assert any(trial.outcome == "ok" for trial in trials)
        assert handle.download(folder).artifact.stat().st_size > 0
        assert [device.name for device in client.devices.list()] == ["compose-cpu"]
        wait_until(lambda: client.devices.list()[0].state == "online", lambda: host.log("device"))

    started = [
        child.pid
        for process in host.processes.values()
        for child in psutil.Process(process.pid).children(recursive=True)
    ]
    for service in ("device", "worker", "api", "gateway", "valkey"):
        assert host.stop(service) in (0, -signal.SIGTERM), host.log(service)
    wait_gone(started, "all that the services started")
    assert not (folder / "device" / "state.json").exists()
    assert list((folder / "device" / "sessions").iterdir()) == []
