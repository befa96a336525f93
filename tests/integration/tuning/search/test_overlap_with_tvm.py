"""Overlapped rounds with real compilers: builds of the next round continue, and end if it is discarded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from farm_processes import command_line
from waiting import wait_gone, wait_until

from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.interfaces import MeasureInput, MeasureOption, MeasureResult
from tunefarm_tuning.measure.runner import LocalRunner
from tunefarm_tuning.measure.runner.replay import ReplayRunner
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.search.round import prepare_round, run_round
from tunefarm_tuning.search.tune import tune
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.tuner import make_tuner
from tunefarm_tuning.workload.task import TuningTask


class Elsewhere(LocalRunner):
    """This machine, as if it were another one. Its first measurement waits for kernels of the next round."""

    def __init__(self, kernels: Path, wanted: int) -> None:
        super().__init__(threads=1)
        self._kernels = kernels
        self._wanted = wanted

    @property
    def shares_host(self) -> bool:
        return False

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        wanted, self._wanted = self._wanted, 0
        wait_until(lambda: len(list(self._kernels.iterdir())) >= wanted, "kernels of the next round")
        return super().run(inputs)


def never(task: TuningTask, config: Config) -> tuple[float, ...]:
    raise AssertionError("nothing is to be measured")


def test_kernels_of_the_next_round_are_built_while_one_is_measured(tmp_path: Path) -> None:
    tasks = [sample_task("matmul", n=32), sample_task("softmax", n=32)]
    with LocalBuilder(workers=2, work_dir=tmp_path) as builder:
        kernels = builder._scratch.path / "kernels"
        with Elsewhere(kernels, wanted=6) as runner:
            result = tune(
                tasks,
                tuner="xgb",
                budget=Budget(trials=16),
                round_size=4,
                measure_option=MeasureOption(builder=builder, runner=runner),
            )
        assert result.trials == 16
        assert [task.trials > 0 for task in result.tasks] == [True, True]
        assert all(task.best_cost_sec is not None for task in result.tasks)
        assert list(kernels.iterdir()) == []


@pytest.mark.exhaustive
def test_a_round_thrown_away_ends_its_builds_and_the_builder_stays_usable(tmp_path: Path) -> None:
    task = sample_task("conv2d", size=14, channels=16)
    with LocalBuilder(workers=2, work_dir=tmp_path) as builder:
        kernels = builder._scratch.path / "kernels"
        space = builder.config_space(task)
        option = MeasureOption(builder=builder, runner=ReplayRunner(never, shares_host=False))
        prepared = prepare_round(make_tuner("random", task, space), task, 64, option)
        wait_until(lambda: list(kernels.iterdir()), "the first kernel")
        prepared.discard()
        assert list(kernels.iterdir()) == []
        assert len(prepared.candidates.configs) == 64
        assert not [thread for thread in threading.enumerate() if thread.name == "prepare-round"]
        with LocalRunner(threads=1) as runner:
            again = MeasureOption(builder=builder, runner=runner)
            outcomes = run_round(make_tuner("random", task, space, seed=1), task, 2, again)
        assert {outcome.outcome for outcome in outcomes} == {Outcome.OK}
    below = psutil.Process().children(recursive=True)
    wait_gone(
        [process.pid for process in below if "build_child" in command_line(process)],
        "the builder's processes",
    )
