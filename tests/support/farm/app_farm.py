"""A farm in one process: a real database and store, a dispatcher that the test drains, and no compiler."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from migrated_database import upgrade
from noted_peak import noted_peak
from pydantic import SecretStr

from tunefarm_app.devices.calibration import ask_for_calibrations, calibrate_device
from tunefarm_app.devices.register import DeviceRegistration, register_device
from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_app.jobs.submit import JobRequest, submit_job
from tunefarm_app.models.submit import submit_model
from tunefarm_app.operations.reconcile import send_due
from tunefarm_app.runtime.composition import Services
from tunefarm_app.runtime.dispatch import queue_of
from tunefarm_app.settings import Settings
from tunefarm_app.steps.run import run_steps
from tunefarm_app.storage.blob_store import BlobStore
from tunefarm_db.engine import make_engine
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.unit_of_work import UnitOfWork
from tunefarm_db.values import Device, Job, Model, Step, StepKind, Trial
from tunefarm_tuning.measure.peak import Peak
from tunefarm_tuning.search.budget import Budget


@dataclass
class Inbox:
    """A `Dispatcher` whose messages the test takes out; `up` is whether its broker is.

    Attributes:
        queues: The queue of each message that was sent; others wait in every queue.
    """

    up: bool = True
    messages: list[str] = field(default_factory=list)
    calibrations: list[tuple[str, int]] = field(default_factory=list)
    queues: dict[str, str] = field(default_factory=dict)

    def send(self, step_id: str, kind: StepKind) -> bool:
        if self.up:
            self.queues[step_id] = queue_of(kind)
            self.messages.append(step_id)
        return self.up

    def send_calibration(self, device_id: str, fence: int) -> bool:
        if self.up:
            self.calibrations.append((device_id, fence))
        return self.up

    def queue_length(self, kind: StepKind) -> int | None:
        if not self.up:
            return None
        queue = queue_of(kind)
        return sum(self.queues.get(message, queue) == queue for message in self.messages)

    def ping(self) -> bool:
        return self.up

    def close(self) -> None:
        pass


@dataclass
class Farm:
    services: Services
    inbox: Inbox

    def with_settings(self, **changes: Any) -> Farm:
        settings = self.services.settings.model_copy(update=changes)
        return Farm(replace(self.services, settings=settings), self.inbox)

    def empty_twin(self, folder: Path) -> Farm:
        """Return a farm with the same settings and nothing on record; close its services."""
        places = {"database_url": SecretStr(f"sqlite:///{folder / 'twin.db'}"), "store_dir": folder / "twin"}
        return make_farm(self.services.settings.model_copy(update=places))

    def with_engine(self, engine: ReplayEngine) -> Farm:
        return Farm(replace(self.services, engine=engine), self.inbox)

    def run(self, *, steps: int = 10_000) -> int:
        """Deliver messages until none is left, or that many were delivered; return how many were."""
        done = 0
        while self.inbox.messages and done < steps:
            run_steps(self.inbox.messages.pop(0), self.services)
            done += 1
        return done

    def run_again(self, engine: ReplayEngine) -> None:
        """Let the back-off of every step pass, and run the steps on another engine."""
        with self.services.uow.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE steps SET not_before = 0 WHERE state = 'ready'")
        send_due(self.services, resend_after_sec=0)
        self.with_engine(engine).run()

    def end_leases(self) -> None:
        """Let every step's lease end now, as time would."""
        with self.services.uow.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE steps SET lease_until = 1 WHERE state = 'leased'")

    def calibrate(self) -> int:
        """Ask for the calibrations that are due, and run all that were asked for; return how many."""
        ask_for_calibrations(self.services)
        done = 0
        while self.inbox.calibrations:
            calibrate_device(*self.inbox.calibrations.pop(0), self.services)
            done += 1
        return done

    def run_until_quiet(self) -> None:
        """Deliver messages and let the reconciler send due steps, until nothing is due."""
        self.run()
        while send_due(self.services, resend_after_sec=0):
            self.run()

    def upload(self, scenario: Scenario | bytes, name: str = "net.onnx", **shapes: list[int]) -> Model:
        data = scenario if isinstance(scenario, bytes) else scenario.to_bytes()
        blob = self.services.blobs.put([data])
        return submit_model(self.services, name=name, blob=blob, shapes=shapes).model

    def ready_model(self, scenario: Scenario | None = None, *, name: str = "net.onnx") -> Model:
        model = self.upload(scenario or Scenario(), name)
        self.run()
        return self.model(model.id)

    def add_device(self, name: str = "dev-1", device_key: str = "pool", **changes: Any) -> Device:
        """Register a device that needs no calibration."""
        device = self.newcomer(name, device_key, **changes)
        with self.services.uow.write() as repos:
            return repos.devices.apply(device.id, DeviceEvent.CLEAN)

    def newcomer(self, name: str = "dev-1", device_key: str = "pool", **changes: Any) -> Device:
        registration = DeviceRegistration(
            **{
                "name": name,
                "device_key": device_key,
                "target": {"kind": "llvm", "num-cores": 2},
                "info": {},
                "device_model": "replay-cpu",
                "rpc_key": f"key-{name}",
                **changes,
            }
        )
        return register_device(self.services, registration)

    def note_peak(self, device: Device, **figures: Any) -> Peak:
        """Note a device's peak; see `noted_peak`."""
        return noted_peak(self.services, device, **figures)

    def submit(self, model: Model, *, trials: int | None = 16, key: str | None = None, **terms: Any) -> Job:
        budget = terms.pop("budget", None)
        if budget is None and terms.get("search", True):
            budget = Budget(trials=trials)
        request = JobRequest(model_id=model.id, budget=budget, **terms)
        return submit_job(self.services, request, idempotency_key=key).job

    def model(self, model_id: str) -> Model:
        with self.services.uow.read() as repos:
            return repos.models.get(model_id, deleted=True)

    def job(self, job_id: str) -> Job:
        with self.services.uow.read() as repos:
            return repos.jobs.get(job_id)

    def steps(self, job_id: str) -> tuple[Step, ...]:
        with self.services.uow.read() as repos:
            return repos.steps.for_job(job_id)

    def device(self, device_id: str) -> Device:
        with self.services.uow.read() as repos:
            return repos.devices.get(device_id)

    def devices(self, device_key: str = "pool") -> tuple[Device, ...]:
        with self.services.uow.read() as repos:
            return tuple(repos.devices.in_pool(device_key))

    def trials(self, job_id: str) -> list[Trial]:
        with self.services.uow.read() as repos:
            return list(repos.trials.page(job_id, limit=500).items)

    def events(self, job_id: str) -> list[str]:
        with self.services.uow.read() as repos:
            return [event.kind for event in repos.events.after(job_id)]


def farm_settings(folder: Path, **changes: Any) -> Settings:
    """Return settings of a farm whose database and store are in the folder, with an unreachable broker."""
    places = {
        "database_url": f"sqlite:///{folder / 'farm.db'}",
        "broker_url": "redis://127.0.0.1:1/0",
        "store_dir": folder / "store",
        "engine": "replay",  # as `make_farm` makes it, and the doctor is told
        "calibrate_every_sec": 0.0,
        "max_drafts_bytes": 0,  # tests that want drafts say so
        "device_stale_sec": 3600.0,  # no device falls silent because a machine is slow; tests that want it say so
    }
    return Settings(**{**places, **changes})


def make_farm(settings: Settings, engine: Any = None) -> Farm:
    """Return a farm on the settings' database, which is made ready for it. Close its services."""
    url = settings.database_url.get_secret_value()
    upgrade(url)
    inbox = Inbox()
    services = Services(
        settings=settings,
        uow=UnitOfWork(make_engine(url)),
        blobs=BlobStore(settings.store_dir),
        dispatcher=inbox,
        engine=engine or ReplayEngine(),
    )
    return Farm(services, inbox)
