"""Time the winners of all sides again, in turn and by the same code: only these costs are compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from tunefarm_tuning.measure.interfaces import MeasureInput, Runner, TimingOption
from tunefarm_tuning.measure.runner.local import LocalRunner
from tunefarm_tuning.workload.task import TuningTask

ROUNDS = 15


def retime(task: TuningTask, kernels: Mapping[str, Path], *, rounds: int = ROUNDS) -> dict[str, float]:
    """Return each kernel's median seconds per call (A B C, A B C, ...); one that fails is left out.

    Another's work on the machine slows all of a round alike, and a median forgets it.
    """
    with retiming_runner(threads=1) as runner:
        return retime_on(runner, task, kernels, rounds=rounds)


def retiming_runner(*, threads: int) -> LocalRunner:
    """Return a runner that has patience with slow kernels."""
    return LocalRunner(timing=TimingOption(timeout_sec=600.0), threads=threads)


def retime_on(
    runner: Runner, task: TuningTask, kernels: Mapping[str, Path], *, rounds: int = ROUNDS
) -> dict[str, float]:
    """Time kernels like `retime`, on a given runner."""
    inputs = [MeasureInput(task=task, artifact_path=path.absolute()) for path in kernels.values()]
    results = runner.run_interleaved(inputs, rounds=rounds)
    return {
        name: median(result.samples_sec)
        for name, result in zip(kernels, results, strict=True)
        if result.samples_sec
    }
