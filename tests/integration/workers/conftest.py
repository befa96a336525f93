"""A real broker, and real worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from farm_processes import Broker, Worker, free_port
from waiting import wait_until

from tunefarm_app.devices.register import DeviceRegistration, register_device
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_app.operations.reconcile import Reconciler
from tunefarm_app.runtime.composition import Services, compose
from tunefarm_app.settings import Settings
from tunefarm_db.schema import upgrade
from tunefarm_db.values import Job, Model, ModelState, Trial
from tunefarm_tuning.search.budget import Budget


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path, free_port())
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def settings(tmp_path: Path, broker: Broker) -> Settings:
    return Settings(
        database_url=f"sqlite:///{tmp_path / 'farm.db'}",
        broker_url=broker.url,
        store_dir=tmp_path / "store",
        lease_sec=3.0,
        max_step_attempts=50,  # a starved worker loses its lease, too, and no job may fail for that
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
            for name in ("store_dir", "lease_sec", "max_step_attempts", "device_stale_sec", "engine")
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
    """The services of the API process, with its reconciler running."""

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
