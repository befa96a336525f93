"""The extract step of a job does not extract what the model's import did."""

from __future__ import annotations

from typing import Any

from app_farm import Farm

from tunefarm_app.engines.replay import ReplayEngine
from tunefarm_app.engines.scenario import Scenario
from tunefarm_db.states.job import JobState
from tunefarm_tuning.workload.task import TuningTask


class CountingEngine(ReplayEngine):
    """Notes for which targets tasks are extracted."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def extract_tasks(self, *args: Any, **named: Any) -> tuple[TuningTask, ...]:
        self.targets.append(args[1].key)
        return super().extract_tasks(*args, **named)


def test_a_float_network_is_extracted_once_for_cpus_with_products_of_bytes(farm: Farm) -> None:
    engine = CountingEngine()
    farm = farm.with_engine(engine)
    farm.add_device()
    model = farm.upload(Scenario(tasks=2))
    farm.run()
    tasks = []
    for target in ("llvm -mcpu=skylake-avx512", "llvm -mcpu=cascadelake"):
        job = farm.submit(farm.model(model.id), trials=8, target=target)
        farm.run()
        assert farm.job(job.id).state is JobState.SUCCEEDED, farm.job(job.id).error
        with farm.services.uow.read() as repos:
            tasks.append([(task.workload_key, task.weight) for task in repos.jobs.tasks(job.id)])
    assert tasks[0] == tasks[1]
    assert engine.targets == ["llvm"], "by the import alone"
