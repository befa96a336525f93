"""A farm of real processes that a soak test breaks, and the audit that follows.

Everything is private: the broker, the store, the folder for temporary files. The engine replays, so that the farm's
own machinery is what runs. Every process carries a mark in its environment, by which what is left over is found.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import lease_log
import psutil
from farm_processes import Broker, Worker, free_port
from parentage import die_with_parent
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from waiting import gone, wait_until

from tunefarm_app.access.api_keys import create_api_key
from tunefarm_app.devices.register import DeviceRegistration, register_device
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_app.operations.reconcile import Reconciler
from tunefarm_app.runtime.composition import Services, compose
from tunefarm_app.settings import Settings
from tunefarm_db.repositories.farm.counters import Counter
from tunefarm_db.schema import upgrade
from tunefarm_db.values import Job, Model, ModelState, Step, StepState
from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.search.budget import Budget

MARK = "TUNEFARM_SOAK_MARK"
WITHIN_SEC = 1200.0
Value = TypeVar("Value")

_SETTINGS: dict[str, Any] = {
    "lease_sec": 3.0,
    "max_step_attempts": 100_000,  # more are killed here than in a life
    "device_stale_sec": 1e6,
    "device_retry_sec": 0.2,
    "calibrate_every_sec": 0.0,
    "step_chain_sec": 0.0,  # every round goes through the broker
    "drain_sec": 0.5,
    "engine": "replay",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a soak, after its audit."""

    jobs: int = 0
    steps: int = 0
    trials: int = 0
    step_leases: int = 0
    device_leases: int = 0
    side_by_side: int = 0
    late_writes: int = 0
    seconds: float
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class SoakFarm:
    """See the module; `soak_farm` makes one."""

    folder: Path
    settings: Settings
    environment: dict[str, str]
    broker: Broker
    services: Services
    mark: str
    api_port: int = field(default_factory=free_port)
    workers: list[Worker] = field(default_factory=list)
    api: subprocess.Popen[bytes] | None = None
    began: float = field(default_factory=time.monotonic)
    api_key: str = ""

    def start_worker(self) -> Worker:
        """Start a worker with one child; it is ready some seconds later."""
        path = self.folder / f"worker-{len(self.workers)}.log"
        worker = Worker(self.environment, path, "--concurrency", "1")
        self.workers.append(worker)
        return worker

    def start_api(self, failpoint: str = "") -> None:
        """Start the API, with its reconciler, on the port that it always has; with a failpoint it will kill itself."""
        command = [sys.executable, str(Path(__file__).with_name("failing_api.py")), str(self.api_port)]
        with (self.folder / "api.log").open("ab") as log:
            self.api = subprocess.Popen(
                [*command, failpoint],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509  (it takes no lock)
            )

    def api_ended(self) -> bool:
        """Return whether the API was killed; it must not end in another way."""
        assert self.api is not None
        code = self.api.poll()
        assert code in (None, -signal.SIGKILL), (self.folder / "api.log").read_text()[-4000:]
        return code is not None

    def wait_for_api(self) -> None:
        with self.client() as client:

            def answers() -> bool:
                assert self.api is not None
                assert self.api.poll() is None, (self.folder / "api.log").read_text()[-4000:]
                with contextlib.suppress(httpx.TransportError):
                    return client.get("/healthz").status_code == 200
                return False

            wait_until(answers, "the API", within_sec=WITHIN_SEC)

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.api_url,
            headers={"Authorization": f"Bearer {self.api_key}"},
            timeout=120,
            trust_env=False,
        )

    def wait(self, condition: Callable[[], Value], awaited: str) -> Value | None:
        """Wait for a condition; while the database is away it is not met."""

        def met() -> Value | None:
            with contextlib.suppress(TransientError, OperationalError):
                return condition()
            return None

        return wait_until(met, lambda: f"{awaited}; {self.standing()}", within_sec=WITHIN_SEC)

    def standing(self) -> str:
        """Describe the open steps, for a test that waited in vain."""
        with self.services.uow.read() as repos:
            steps = [vars_of(step) for step in repos.steps.due(50, resend_after_sec=0)]
            open_steps = {
                f"{steps.kind} {steps.state}": steps.count for steps in repos.statistics.open_steps()
            }
            return json.dumps({"open": open_steps, "due": steps[:5]})

    def ready_model(self, scenario: Scenario | bytes) -> Model:
        """Upload a scenario (or a network, where the engine is no replay) and wait until it is imported."""
        data = scenario if isinstance(scenario, bytes) else scenario.to_bytes()
        blob = self.services.blobs.put([data])
        model_id = submit_model(self.services, name="net.onnx", blob=blob).model.id

        def imported() -> Model | None:
            with self.services.uow.read() as repos:
                model = repos.models.get(model_id)
            assert model.state is not ModelState.FAILED, model.error
            return model if model.state is ModelState.READY else None

        model = self.wait(imported, "the model to be imported")
        assert model is not None
        return model

    def add_devices(self, number: int) -> None:
        for name in (f"dev-{n}" for n in range(number)):
            registration = DeviceRegistration(
                name=name,
                device_key="pool",
                target={"kind": "llvm", "num-cores": 2},
                info={},
                device_model="replay-cpu",
                rpc_key=f"key-{name}",
            )
            register_device(self.services, registration)

    def submit(self, model: Model, *, trials: int, seed: int, round_size: int = 1) -> Job:
        """Submit a job of a tuner that takes little time."""
        request = JobRequest(
            model_id=model.id,
            budget=Budget(trials=trials),
            seed=seed,
            tuner="random",
            round_size=round_size,
        )
        return submit_job(self.services, request).job

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the database, without a lock that writers would wait for."""
        options = {"tunefarm_read_only": True, "postgresql_readonly": True}
        with self.services.uow.engine.connect() as connection:
            result = connection.execution_options(**options).execute(text(query)).tuples().all()
            return [tuple(row) for row in result]

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    def done_steps(self) -> int:
        return self.count("steps WHERE state = 'done'")

    def open_jobs(self) -> int:
        return self.count("jobs WHERE state NOT IN ('succeeded', 'failed', 'cancelled')")

    def see_work(self, submit: Callable[[], Job]) -> list[Job]:
        """Wait until one more step is done; return the jobs that it took, for those before may be over at any moment."""
        done = self.done_steps()
        submitted: list[Job] = []

        def more() -> bool:
            if not self.open_jobs():
                submitted.append(submit())
            return self.done_steps() > done

        self.wait(more, "work under way")
        return submitted

    def finish(self) -> None:
        """Wait until no job is open."""
        self.wait(lambda: self.open_jobs() == 0, "every job to end")

    def step(self, step_id: str) -> Step:
        with self.services.uow.read() as repos:
            return repos.steps.get(step_id)

    def leased(self) -> list[Step]:
        """Return the rounds that workers are at."""
        ids = self.rows("SELECT id FROM steps WHERE state = 'leased' AND kind = 'tune' ORDER BY id")
        steps = [self.step(step_id) for (step_id,) in ids]
        return [step for step in steps if step.state is StepState.LEASED]

    def at_work(self, rng: random.Random) -> tuple[Worker, Step, int] | None:
        """Return a worker that is at a round, the round, and the process that works on it."""
        living = [worker for worker in self.workers if worker.process.poll() is None]
        children = {pid: worker for worker in living for pid in worker.descendants()}
        workers_at_work = [
            (children[pid], step, pid)
            for step in self.leased()
            if step.lease_owner and (pid := int(step.lease_owner.split(":")[1])) in children and not gone(pid)
        ]
        return rng.choice(workers_at_work) if workers_at_work else None

    def late_writes(self) -> int:
        """Return how often a worker said that its write came late."""
        return sum(worker.log.count("late write rejected") for worker in self.workers)

    def stop(self) -> None:
        """End all processes as an operator does, the broker last."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.wait(600)
        if self.api is not None and self.api.poll() is None:
            self.api.send_signal(signal.SIGTERM)
            assert self.api.wait(600) == 0, (self.folder / "api.log").read_text()[-4000:]

    def kill(self) -> None:
        """Leave nothing running, whatever happened."""
        for pid in marked(self.mark):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        for worker in self.workers:
            worker.process.wait()
        if self.api is not None:
            self.api.wait()
        self.broker.kill()


def vars_of(step: Step) -> dict[str, Any]:
    return {
        "id": step.id,
        "kind": step.kind,
        "round": step.round,
        "attempts": step.attempts,
        "error": step.error,
    }


def marked(mark: str) -> list[int]:
    """Return the processes, this one left out, that were started with the mark."""
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
    return pids


@contextmanager
def soak_farm(
    folder: Path, database_url: str, *, workers: int, devices: int, reconcile: bool = True, **settings: Any
) -> Iterator[SoakFarm]:
    """Start a farm for the time of the block; `SoakFarm.start_api` comes on top where `reconcile` is False."""
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    broker = Broker(folder, free_port())
    chosen = {**_SETTINGS, **settings}
    chosen_settings = Settings(
        database_url=database_url, broker_url=broker.url, store_dir=folder / "store", **chosen
    )
    mark = secrets.token_hex(8)
    environment = {
        MARK: mark,
        "TMPDIR": str(temporary),
        "TUNEFARM_DATABASE_URL": database_url,
        "TUNEFARM_BROKER_URL": broker.url,
        "TUNEFARM_STORE_DIR": str(folder / "store"),
        **{f"TUNEFARM_{name.upper()}": str(value) for name, value in chosen.items()},
    }
    upgrade(database_url)
    services = compose(chosen_settings)
    lease_log.install(services.uow.engine)
    farm = SoakFarm(
        folder=folder,
        settings=chosen_settings,
        environment=environment,
        broker=broker,
        services=services,
        mark=mark,
        api_key=create_api_key(services, name="soak")[1],
    )
    reconciler = Reconciler(services, every_sec=0.3)
    try:
        broker.start()
        farm.add_devices(devices)
        if reconcile:
            reconciler.start()
        for _ in range(workers):
            farm.start_worker()
        yield farm
    finally:
        reconciler.stop()
        farm.kill()
        services.close()


def counted(farm: SoakFarm) -> float:
    """Return how many late writes the database has counted."""
    with farm.services.uow.read() as repos:
        return sum(repos.counters.all()[Counter.LATE_WRITES].values())
