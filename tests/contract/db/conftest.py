"""Fixtures of the database's contract suite: every test here runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from migrated_database import upgrade
from sqlalchemy import Engine

from tunefarm_db.engine import make_engine
from tunefarm_db.states.device import DeviceEvent
from tunefarm_db.unit_of_work import Repositories, UnitOfWork
from tunefarm_db.values import Device, Job, Model, NewRecord, NewTrial, Step, StepKind


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    upgrade(database_url)
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def uow(engine: Engine) -> UnitOfWork:
    return UnitOfWork(engine)


@dataclass(frozen=True)
class Seed:
    """Makes rows that a test needs but does not test."""

    uow: UnitOfWork

    def model(self, sha256: str = "ab" * 32, **changes: Any) -> Model:
        with self.uow.write() as repos:
            return repos.models.add(**{"name": "net", "sha256": sha256, "size_bytes": 10, **changes})

    def job(self, model: Model | None = None, **changes: Any) -> Job:
        model = model or self.model(sha256=f"{abs(hash(str(changes))):064x}"[:64])
        with self.uow.write() as repos:
            return repos.jobs.add(
                **{
                    "model_id": model.id,
                    "target": {"kind": "llvm"},
                    "target_key": "llvm",
                    "device_key": "cpu",
                    "tuner": "xgb",
                    "seed": 7,
                    "budget": {"trials": 64},
                    **changes,
                }
            )

    def step(self, job: Job | None = None, **changes: Any) -> Step:
        job = job or self.job()
        with self.uow.write() as repos:
            return repos.steps.add(
                changes.pop("kind", StepKind.TUNE),
                **{"subject_id": job.id, "model_id": job.model_id, "job_id": job.id, **changes},
            )

    def newcomer(self, name: str = "node-1", **changes: Any) -> Device:
        """A device that was not calibrated yet."""
        with self.uow.write() as repos:
            return repos.devices.register(**{**device_fields(name), **changes})

    def device(self, name: str = "node-1", **changes: Any) -> Device:
        device = self.newcomer(name, **changes)
        with self.uow.write() as repos:
            return repos.devices.apply(device.id, DeviceEvent.CLEAN)


def device_fields(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "device_key": "cpu",
        "target": {"kind": "llvm", "num-cores": 2},
        "info": {"cores": 2},
        "device_model": "cpu-model",
        "rpc_key": f"key-{name}",
    }


@pytest.fixture
def seed(uow: UnitOfWork) -> Seed:
    return Seed(uow)


@pytest.fixture
def new_trial() -> Any:
    def make(ordinal: int, **changes: Any) -> NewTrial:
        fields = {
            "position": 0,
            "ordinal": ordinal,
            "config_key": f"[0,[{ordinal}]]",
            "asked_key": f"[0,[{ordinal}]]",
            "outcome": "ok",
            "cost_sec": 1e-3,
            "message": "",
            "build_sec": 0.5,
            "run_sec": 0.2,
            "measured_at": 1.0,
        }
        return NewTrial(**{**fields, **changes})

    return make


@pytest.fixture
def new_record() -> Any:
    def make(workload_key: str = "w1", cost_sec: float | None = 1e-3, **changes: Any) -> NewRecord:
        fields: dict[str, Any] = {
            "workload_key": workload_key,
            "target_key": "llvm",
            "device_model": "cpu-model",
            "toolchain": "tvm-1",
            "space_key": "s1",
            "config": [0, [[4, 2], 3]],
            "outcome": "ok" if cost_sec else "build-error",
            "cost_sec": cost_sec,
            "samples_sec": [cost_sec] * 3 if cost_sec else [],
            "build_sec": 0.5,
            "measured_at": 1.0,
        }
        return NewRecord(**{**fields, **changes})

    return make


def expire_lease(repos: Repositories, table: str, row_id: str) -> None:
    """Move a lease's end into the past: tests do not wait for clocks."""
    from sqlalchemy import text

    repos._connection.execute(text(f"UPDATE {table} SET lease_until = 1.0 WHERE id = :id"), {"id": row_id})


@pytest.fixture
def expire(uow: UnitOfWork) -> Any:
    def run(table: str, row_id: str) -> None:
        with uow.write() as repos:
            expire_lease(repos, table, row_id)

    return run
