"""A search over a synthetic landscape: it needs neither a compiler nor a device."""

from __future__ import annotations

from tunefarm_tuning.measure.builder.replay import ReplayBuilder
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.measure.runner.landscape import SyntheticLandscape
from tunefarm_tuning.measure.runner.replay import ReplayRunner
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.result import TuneResult
from tunefarm_tuning.search.tune import tune
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask


def replayed_search(task: TuningTask, space: ConfigSpace, *, trials: int) -> TuneResult:
    """Search a task's space for a number of trials; the result is reproducible."""
    replayed = ReplayBuilder({task.workload.key: space})
    with replayed, ReplayRunner(SyntheticLandscape(space, seed=3)) as runner:
        option = MeasureOption(builder=replayed, runner=runner)
        return tune([task], budget=Budget(trials=trials), measure_option=option, seed=5, confirm=False)
