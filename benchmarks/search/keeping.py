"""Keep the kernels of a run over many tasks, to time them again at the end."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.search.clock import Clock, TimedBuilder

from tunefarm_tuning.measure.interfaces import BuildResult, MeasureInput, MeasureResult
from tunefarm_tuning.space.config import Config


def kernel_name(workload_key: str, config: Config) -> str:
    """Return the file name of a config's kernel: the same in every run."""
    return f"{workload_key[:12]}-{hashlib.sha256(config.key.encode()).hexdigest()[:16]}.so"


class NotingBuilder(TimedBuilder):
    """A timed builder that remembers which config each artifact is of."""

    def __init__(self, inner: Any, clock: Clock) -> None:
        super().__init__(inner, clock)
        self.configs: dict[Path, Config] = {}

    def _count(self, result: BuildResult) -> None:
        super()._count(result)
        if result.artifact_path is not None:
            self.configs[result.artifact_path] = result.config


class TaskwiseKeepingRunner:
    """A runner that is timed, and keeps a copy of whatever may be named as a task's best.

    That is each kernel that was the fastest so far of its task, and each that was measured again to confirm it.
    """

    def __init__(self, inner: Any, clock: Clock, builder: NotingBuilder, folder: Path) -> None:
        self._inner = inner
        self._clock = clock
        self._builder = builder
        self._folder = folder
        self._best_sec: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        with self._clock.of("measure"):
            results: list[MeasureResult] = self._inner.run(inputs)
        for measured, result in zip(inputs, results, strict=True):
            key = measured.task.workload.key
            rival_sec = min(self._best_sec.get(key, float("inf")), measured.rival_sec or float("inf"))
            if result.cost_sec is not None and result.cost_sec < rival_sec:
                self._best_sec[key] = result.cost_sec
                self._keep(measured)
        return results

    def run_interleaved(self, inputs: Sequence[MeasureInput], *, rounds: int) -> list[MeasureResult]:
        with self._clock.of("measure"):
            results: list[MeasureResult] = self._inner.run_interleaved(inputs, rounds=rounds)
        for measured in inputs:
            self._keep(measured)
        return results

    def _keep(self, measured: MeasureInput) -> None:
        config = self._builder.configs[measured.artifact_path]
        shutil.copyfile(
            measured.artifact_path, self._folder / kernel_name(measured.task.workload.key, config)
        )
