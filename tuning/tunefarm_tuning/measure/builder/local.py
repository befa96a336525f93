"""`LocalBuilder`: builds candidates in long-lived child processes of this machine."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.measure.builder.build_pool import BuildPool, BuildStream
from tunefarm_tuning.measure.builder.kernel_cache import KernelCache
from tunefarm_tuning.measure.builder.worker import BuildWorker
from tunefarm_tuning.measure.interfaces import BuildInput, BuildResult
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask

_MAX_DEFAULT_WORKERS = 16
_CACHE_BYTES = 64 << 20  # some two thousand kernels


class LocalBuilder(Closing):
    """Implements `Builder` (see there) with long-lived child processes.

    Children start when there is work for them and keep a task's design space. They are replaced after a crash, a time-out, or
    when they have grown. A time-out also kills the processes that a child started. A kernel whose code was built recently is not
    built again (see `KernelCache`).

    Args:
        workers: The most children. By default one per core that this process may use, up to 16; each takes about 250 MB.
        timeout_sec: Wall-clock limit of one build.
        work_dir: Where the private folder for artifacts is made; by default the system's folder for temporary files.
        limits: Limits of each child.
        cache_bytes: Size of the kernels that are kept for reuse, in bytes.

    Raises:
        ValueError: If `workers` is less than 1.
    """

    def __init__(
        self,
        workers: int | None = None,
        timeout_sec: float = 30.0,
        work_dir: Path | None = None,
        *,
        limits: ChildLimits = ChildLimits(),  # noqa: B008  (frozen)
        cache_bytes: int = _CACHE_BYTES,
    ) -> None:
        count = workers if workers is not None else min(len(os.sched_getaffinity(0)), _MAX_DEFAULT_WORKERS)
        if count < 1:
            raise ValueError(f"workers is {count}, but a builder needs at least 1")
        self._scratch = ScratchDir(work_dir)
        self._artifacts = self._scratch.path / "kernels"
        self._artifacts.mkdir()
        recent = self._scratch.path / "recent"
        recent.mkdir()
        cache = KernelCache(recent, max_bytes=cache_bytes)
        self._workers = [
            BuildWorker(
                self._scratch.path / f"worker-{i}",
                self._artifacts,
                cache=cache,
                timeout_sec=timeout_sec,
                limits=limits,
            )
            for i in range(count)
        ]
        self._numbers = itertools.count()
        self._pool = BuildPool(self._workers, self._fresh_path)

    @property
    def workers(self) -> int:
        return len(self._workers)

    @property
    def folder(self) -> Path:
        """Where the kernels are."""
        return self._artifacts

    def spawn(self) -> None:
        """Start the child that will get the first work, without waiting."""
        self._workers[0].spawn()

    def config_space(self, task: TuningTask) -> ConfigSpace:
        return self._pool.call(lambda worker: worker.config_space(task))

    def build(self, inputs: Sequence[BuildInput]) -> list[BuildResult]:
        with closing(self.build_each(inputs)) as stream:
            results = dict(stream)
        return [results[number] for number in range(len(inputs))]

    def build_each(self, inputs: Sequence[BuildInput]) -> BuildStream:
        return self._pool.build_each(inputs)

    def _fresh_path(self) -> Path:
        # No path is used twice: the dynamic loader would return the first library loaded from it.
        return self._artifacts / f"kernel-{next(self._numbers)}.so"

    def close(self) -> None:
        """End the children and delete their files, from any thread. A running build then ends at once."""
        for worker in self._workers:
            worker.close()
        self._scratch.close()
