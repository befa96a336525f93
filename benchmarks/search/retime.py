"""Timing the winners of all sides again, in turn, by one and the same code: only such costs are compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from tunefarm_tuning.measure import MeasureInput, TimingOption
from tunefarm_tuning.runner.local import LocalRunner
from tunefarm_tuning.task import TuningTask

ROUNDS = 15


def retime(task: TuningTask, kernels: Mapping[str, Path], *, rounds: int = ROUNDS) -> dict[str, float]:
    """Return each kernel's median seconds per call (A B C, A B C, ...); one that fails is left out.

    Another's work on the machine slows all of a round alike, and a median forgets it.
    """
    inputs = [MeasureInput(task=task, artifact_path=path.absolute()) for path in kernels.values()]
    timing = TimingOption(timeout_sec=600.0)
    with LocalRunner(timing=timing, threads=1) as runner:
        results = runner.run_interleaved(inputs, rounds=rounds)
    return {
        name: median(result.samples_sec)
        for name, result in zip(kernels, results, strict=True)
        if result.samples_sec
    }
