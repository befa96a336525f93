"""The config spaces of a scenario's tasks, and the results of measuring their configs."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from tunefarm_app.engines.recorded_tasks import replayed
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.interfaces import Failure
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.workload.computation import Access, Axis, Computation
from tunefarm_tuning.workload.task import TuningTask


def task_facts(task: TuningTask) -> dict[str, Any]:
    """Return what a scenario says of a task."""
    facts: dict[str, Any] = json.loads(task.workload.ir)
    return facts


def scenario_space(task: TuningTask) -> ConfigSpace:
    """Return the config space of a scenario's task.

    Raises:
        InvalidInputError: ``cannot-be-scheduled`` if the scenario says so.
    """
    known = replayed(task.workload.key, task.workload.ir)
    if known is not None:
        return known.space
    facts = task_facts(task)
    if facts["unschedulable"]:
        raise InvalidInputError(f"no schedule rule fits {task.workload.name}", code="cannot-be-scheduled")
    if facts.get("nests"):
        return _matmul_space(facts["extent"])
    knobs = [Knob.categorical("unroll", [0, 16, 64, 512])]
    if facts["extent"] > 1:
        knobs += [Knob.tile(name, facts["extent"], 3, 64) for name in ("i", "j")]
    return ConfigSpace([Sketch(tuple(knobs))])


def _matmul_space(extent: int) -> ConfigSpace:
    """Return a space of a square matrix product, tiled as MetaSchedule does it for a CPU."""
    axes = tuple(Axis(extent=extent, reduces=reduces) for reduces in (False, False, True))
    row, column, inner = (((axis, 1),) for axis in range(3))
    accesses = tuple(
        Access(itemsize_bytes=4, writes=writes, dims=dims)
        for writes, dims in ((False, (row, inner)), (False, (inner, column)), (True, (row, column)))
    )
    knobs = (
        Knob.tile("i", extent, 4, 64),
        Knob.tile("j", extent, 4, 64),
        Knob.tile("k", extent, 2, 64),
        Knob.categorical("unroll", [0, 16, 64, 512]),
    )
    sketch = Sketch(knobs, (0, 1, 2, -1), "SSRSRS", 1)
    return ConfigSpace([sketch], Computation(axes=axes, accesses=accesses, vector_bytes=64))


def landscape_answer(task: TuningTask, config: Config) -> tuple[float, ...] | Failure:
    """Return the result of measuring a config of a scenario's task, without noise."""
    return _landscape(task)(task, config)


@lru_cache(maxsize=64)
def _landscape(task: TuningTask) -> SyntheticLandscape:
    facts = task_facts(task)
    return SyntheticLandscape(scenario_space(task), seed=facts["seed"], failing=facts["failing"])
