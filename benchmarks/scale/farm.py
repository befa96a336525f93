"""A farm of real processes on this machine: API, workers, broker and database; its devices replay a recording."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.scale.postgres import private_postgres
from sqlalchemy import text

from tunefarm.embedded import valkey
from tunefarm_app.devices.register import DeviceRegistration, register_device
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_app.runtime.composition import Services, compose
from tunefarm_app.settings import Settings
from tunefarm_db.schema import upgrade
from tunefarm_db.values import ModelState
from tunefarm_tuning.search.budget import Budget

CHILDREN_PER_WORKER = 16
WITHIN_SEC = 600.0


@dataclass
class ScaleFarm:
    """See the module; `scale_farm` makes one.

    Attributes:
        parts: Process ids by part: ``api``, ``workers``, ``broker``, ``database`` (none where it is SQLite).
    """

    folder: Path
    services: Services
    environment: Mapping[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    parts: dict[str, list[int]] = field(default_factory=dict)

    def start(self, part: str, command: Sequence[str], **environment: str) -> Path:
        """Start a process of a part; return where its output goes."""
        log = self.folder / f"{part}-{len(self.processes)}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (it takes no lock)
            )
        self.processes.append(process)
        self.parts.setdefault(part, []).append(process.pid)
        return log

    def start_workers(self, steps: int) -> None:
        """Start workers for a number of steps at once, one worker after the other: a start costs a second per child."""
        while steps > 0:
            children = min(steps, CHILDREN_PER_WORKER)
            steps -= children
            command = [sys.executable, "-m", "tunefarm_workers.worker", "--concurrency", str(children)]
            log = self.start("workers", command)
            wait_for(lambda log=log: "worker is ready" in log.read_text(), f"a worker ({log})")  # type: ignore[misc]

    def add_devices(self, have: int, want: int) -> None:
        for name in (f"dev-{n}" for n in range(have, want)):
            registration = DeviceRegistration(
                name=name,
                device_key="pool",
                target={"kind": "llvm", "num-cores": 1},
                info={},
                device_model="replay-cpu",
                rpc_key=f"key-{name}",
            )
            register_device(self.services, registration)

    def submit(self, scenarios: Sequence[Scenario], *, tuner: str, trials: int) -> None:
        """Upload networks, wait until they are imported, and submit a job of each."""
        models = [
            submit_model(
                self.services, name="net.onnx", blob=self.services.blobs.put([scenario.to_bytes()])
            ).model.id
            for scenario in scenarios
        ]
        for model_id in models:
            wait_for(lambda model=model_id: self._imported(model), "a model to be imported")  # type: ignore[misc]
        for model_id in models:
            request = JobRequest(model_id=model_id, budget=Budget(trials=trials), tuner=tuner)
            submit_job(self.services, request)

    def _imported(self, model_id: str) -> bool:
        with self.services.uow.read() as repos:
            model = repos.models.get(model_id)
        if model.state is ModelState.FAILED:
            raise RuntimeError(f"the model was not imported: {model.error}")
        return model.state is ModelState.READY

    def rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Ask the database, without a lock that writers would wait for."""
        options = {"tunefarm_read_only": True, "postgresql_readonly": True}
        with self.services.uow.engine.connect() as connection:
            result = connection.execution_options(**options).execute(text(query), values)
            return [tuple(row) for row in result]

    def kill(self) -> None:
        """Leave nothing running: nothing of a benchmark's farm is kept."""
        for process in reversed(self.processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


@contextmanager
def scale_farm(database: str, **settings: Any) -> Iterator[ScaleFarm]:
    """Start a broker, a database ("sqlite" or "postgresql") and an API for the time of the block.

    Workers (`ScaleFarm.start_workers`) and devices come on top. No calibration, no agents: devices stay as they are.
    """
    folder = Path(tempfile.mkdtemp(prefix="tunefarm-scale-"))
    try:
        with _database(database, folder) as (url, postgres):
            port, password = _free_port(), secrets.token_hex(8)
            chosen = {"engine": "replay", "device_stale_sec": 1e6, "calibrate_every_sec": 0.0, **settings}
            farm_settings = Settings(
                database_url=url,  # type: ignore[arg-type]
                broker_url=f"redis://:{password}@127.0.0.1:{port}/0",  # type: ignore[arg-type]
                store_dir=folder / "store",
                **chosen,
            )
            (folder / "tmp").mkdir()
            environment = {
                "TMPDIR": str(folder / "tmp"),
                "TUNEFARM_DATABASE_URL": url,
                "TUNEFARM_BROKER_URL": farm_settings.broker_url.get_secret_value(),
                "TUNEFARM_STORE_DIR": str(folder / "store"),
                **{f"TUNEFARM_{name.upper()}": str(value) for name, value in chosen.items()},
            }
            upgrade(url)
            farm = ScaleFarm(folder=folder, services=compose(farm_settings), environment=environment)
            farm.parts["database"] = [] if postgres is None else [postgres]
            try:
                configuration = valkey.write_configuration(folder, port=port, password=password)
                farm.start("broker", [valkey.find_server(), str(configuration)])
                wait_for(lambda: valkey.answers(port, password), "the broker")
                log = farm.start("api", [sys.executable, "-m", "tunefarm_api", "--port", "0"])
                wait_for(lambda: _said_url(log), "the API")
                yield farm
            finally:
                farm.kill()
                farm.services.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[tuple[str, int | None]]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'farm.db'}", None
        return
    with private_postgres("max_connections=500") as server:  # two for each step at work
        yield server.url, server.pid


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _said_url(log: Path) -> bool:
    for line in log.read_text().splitlines():
        try:
            if "url" in json.loads(line):
                return True
        except ValueError:
            continue
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], awaited: str) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: If it is not within ten minutes.
    """
    until = time.monotonic() + WITHIN_SEC
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"waited in vain for {awaited}")
        time.sleep(0.1)
