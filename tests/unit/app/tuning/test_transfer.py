"""What one job measured helps another: the same workload on another device, and like workloads on this one.

The farm's own doing is tested here: `choose_histories` and the tuners have tests of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from math import log2
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tunefarm_app.engines.replay import ReplayEngine, Scenario
from tunefarm_db.values import Job
from tunefarm_tuning.records.transfer import TaskHistory
from tunefarm_tuning.tuner.xgb import XGBTuner

SMALL = Scenario(tasks=1, extent=64, nests=True)
LARGE = Scenario(tasks=1, extent=128, seed=1, nests=True)


def odd_machine(task: Any, config: Any) -> tuple[float, ...]:
    """Time kernels as no real machine would: the shorter the innermost loop over columns, the better.

    The prior that ships with the tuner expects the opposite, so who does well at once has learned it here.
    """
    inner_columns = config.decisions[1][-1]
    return (1e-3 * (1.0 + log2(inner_columns)),) * 3


def run(farm: Any, scenario: Scenario, *, trials: int, **asked: Any) -> Job:
    job = farm.submit(farm.ready_model(scenario), trials=trials, **asked)
    farm.run()
    done: Job = farm.job(job.id)
    assert done.error is None
    assert done.trials == trials
    return done


def first_costs(farm: Any, job: Job) -> list[float]:
    return [trial.cost_sec for trial in farm.trials(job.id) if trial.round == 0]


def keys(farm: Any, job: Job) -> list[str]:
    """Return the workloads of the job's tasks."""
    with farm.services.uow.read() as repos:
        return [task.workload_key for task in repos.jobs.tasks(job.id)]


@pytest.fixture
def odd_farm(farm: Any) -> Any:
    """A farm on the odd machine, with one device."""
    farm.add_device()
    return farm.with_engine(ReplayEngine(odd_machine))


def test_a_like_workload_makes_the_first_round_better(odd_farm: Any, tmp_path: Path) -> None:
    run(odd_farm, SMALL, trials=32)
    learned = first_costs(odd_farm, run(odd_farm, LARGE, trials=8))
    twin = odd_farm.empty_twin(tmp_path).with_engine(ReplayEngine(odd_machine))
    with closing(twin.services):
        twin.add_device()
        cold = first_costs(twin, run(twin, LARGE, trials=8))
    # Seeds are equal: without what is on record, both would be the same eight trials.
    assert median(learned) < median(cold)
    assert min(learned) <= min(cold)


def test_the_best_of_another_device_is_tried_first(odd_farm: Any) -> None:
    # Another tuner with another seed: nobody comes upon these configs by himself.
    first = run(odd_farm, SMALL, trials=16, tuner="random", seed=3)
    trials = [trial for trial in odd_farm.trials(first.id) if trial.cost_sec is not None]
    best = min(trials, key=lambda trial: (trial.cost_sec, trial.config_key))
    odd_farm.add_device("dev-2", "others", device_model="another-cpu")
    second = run(odd_farm, SMALL, trials=8, device_key="others")
    assert best.config_key in {trial.config_key for trial in odd_farm.trials(second.id)}


def test_what_a_tuner_is_given(odd_farm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like workloads of other jobs and of this one; the same workload of elsewhere; not the task's own records."""
    given: list[dict[str, set[str]]] = []

    def load_history(tuner: XGBTuner, histories: Sequence[TaskHistory]) -> None:
        given.append({h.records[0].workload_key: {r.device_model for r in h.records} for h in histories})

    odd_farm.add_device("dev-2", "others", device_model="another-cpu")
    (small,) = keys(odd_farm, run(odd_farm, SMALL, trials=8, tuner="random", device_key="pool"))
    (large,) = keys(odd_farm, run(odd_farm, LARGE, trials=8, tuner="random", device_key="others"))
    monkeypatch.setattr(XGBTuner, "load_history", load_history)
    run(odd_farm, LARGE, trials=16, device_key="pool")
    assert len(given) == 2  # once for each round
    for histories in given:
        assert histories == {small: {"replay-cpu"}, large: {"another-cpu"}}


def test_tasks_of_one_job_learn_from_each_other(farm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[set[str]] = []

    def load_history(tuner: XGBTuner, histories: Sequence[TaskHistory]) -> None:
        given.append({h.records[0].workload_key for h in histories})

    monkeypatch.setattr(XGBTuner, "load_history", load_history)
    farm.add_device()
    small, large = keys(farm, run(farm, Scenario(tasks=2, nests=True), trials=16))
    assert given == [set(), {large}]  # the large one came first
    assert small != large
