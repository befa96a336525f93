"""Stopwatches around the parts of a search: proxies that add up seconds."""

from __future__ import annotations

import functools
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tunefarm_tuning.measure.interfaces import BuildInput, BuildResult, MeasureInput, MeasureResult


class Clock:
    """Seconds by name. Parts that overlap (building while measuring) are each counted in full."""

    def __init__(self) -> None:
        self.sec: dict[str, float] = defaultdict(float)
        self._lock = threading.Lock()

    def add(self, name: str, sec: float) -> None:
        with self._lock:
            self.sec[name] += sec

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.of(name):
                return function(*args, **kwargs)

        return call


class Timed:
    """Another object, some of whose methods are timed."""

    def __init__(self, inner: Any, clock: Clock, names: dict[str, str]) -> None:
        self._inner = inner
        for method, name in names.items():
            setattr(self, method, clock.timed(name, getattr(inner, method)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class TimedBuilder:
    """A builder that tells where its children's seconds go.

    ``build`` is wall-clock that the caller waited for builds. ``apply_cpu`` and ``build_cpu`` are summed over candidates,
    which are built in parallel; the first is a part of the second.
    """

    def __init__(self, inner: Any, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.built = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def config_space(self, task: Any) -> Any:
        with self._clock.of("space"):
            return self._inner.config_space(task)

    def build(self, inputs: Sequence[BuildInput]) -> list[BuildResult]:
        with self._clock.of("build"):
            results: list[BuildResult] = self._inner.build(inputs)
        for result in results:
            self._count(result)
        return results

    def build_each(self, inputs: Sequence[BuildInput]) -> Iterator[tuple[int, BuildResult]]:
        builds = self._inner.build_each(inputs)
        try:
            while True:
                with self._clock.of("build"):
                    built = next(builds, None)
                if built is None:
                    return
                self._count(built[1])
                yield built
        finally:
            builds.close()

    def _count(self, result: BuildResult) -> None:
        self.built += 1
        self._clock.add("build_cpu", result.build_sec)
        self._clock.add("apply_cpu", result.apply_sec)


class KeepingRunner:
    """A runner that is timed, and keeps a copy of each kernel that is the fastest so far."""

    def __init__(self, inner: Any, clock: Clock, folder: Path) -> None:
        self._inner = inner
        self._clock = clock
        self._folder = folder
        self._best_sec = float("inf")
        self._kept: list[tuple[float, Path]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        with self._clock.of("measure"):
            results: list[MeasureResult] = self._inner.run(inputs)
        for measured, result in zip(inputs, results, strict=True):
            if result.cost_sec is not None and not result.truncated and result.cost_sec < self._best_sec:
                self._best_sec = result.cost_sec
                copy = self._folder / f"kept-{len(self._kept)}.so"
                shutil.copyfile(measured.artifact_path, copy)
                self._kept.append((result.cost_sec, copy))
        return results

    def kernel_of(self, cost_sec: float | None) -> Path | None:
        """Return the copy of the kernel that had this cost when it was the fastest so far; None if none had."""
        return next((path for cost, path in self._kept if cost == cost_sec), None)
