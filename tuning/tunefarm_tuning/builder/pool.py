"""`LocalBuilder`: builds candidates in long-lived child processes of this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tunefarm_tuning.builder.scratch import ScratchDir
from tunefarm_tuning.builder.worker import BuildWorker
from tunefarm_tuning.child import ChildLimits
from tunefarm_tuning.config_space import ConfigSpace
from tunefarm_tuning.measure import BuildInput, BuildResult, Closing
from tunefarm_tuning.task import TuningTask

_MAX_DEFAULT_WORKERS = 16


class LocalBuilder(Closing):
    """Implements `Builder` (see there).

    Children start when there is work for them, keep a task's design space while they live, and are replaced after a
    crash, a time-out, or when they have grown. A time-out kills what the candidate's child started, too.

    Args:
        workers: Children at most. By default one per core that this process may use, up to 16; each takes
            about 250 MB.
        timeout_sec: Wall-clock of one build.
        work_dir: Where the private folder for artifacts is made; the system's folder for temporary files by default.
        limits: What each child may use.
    """

    def __init__(
        self,
        workers: int | None = None,
        timeout_sec: float = 30.0,
        work_dir: Path | None = None,
        *,
        limits: ChildLimits = ChildLimits(),  # noqa: B008  (frozen)
    ) -> None:
        count = workers if workers is not None else min(len(os.sched_getaffinity(0)), _MAX_DEFAULT_WORKERS)
        if count < 1:
            raise ValueError(f"workers is {count}, but a builder needs one at least")
        self._scratch = ScratchDir(work_dir)
        self._artifacts = self._scratch.path / "kernels"
        self._artifacts.mkdir()
        self._workers = [
            BuildWorker(self._scratch.path / f"worker-{i}", timeout_sec=timeout_sec, limits=limits)
            for i in range(count)
        ]
        self._built = 0
        self._caller = threading.Lock()

    def config_space(self, task: TuningTask) -> ConfigSpace:
        with self._caller:
            return self._workers[0].config_space(task)

    def build(self, inputs: Sequence[BuildInput]) -> list[BuildResult]:
        with self._caller:
            return self._build(inputs)

    def _build(self, inputs: Sequence[BuildInput]) -> list[BuildResult]:
        jobs: SimpleQueue[tuple[int, BuildInput] | None] = SimpleQueue()
        results: dict[int, BuildResult] = {}
        for number, one in enumerate(inputs):
            jobs.put((number, one))
        workers = self._workers[: len(inputs)]
        for _ in workers:
            jobs.put(None)

        stopped = threading.Event()

        def work(worker: BuildWorker) -> None:
            while (job := jobs.get()) is not None and not stopped.is_set():
                number, one = job
                results[number] = worker.build(one, self._path(self._built + number))

        if workers:
            with ThreadPoolExecutor(len(workers), thread_name_prefix="build") as pool:
                try:
                    for future in [pool.submit(work, worker) for worker in workers]:
                        future.result()
                except BaseException:  # an interrupt: do not sit out the rest of the batch
                    stopped.set()
                    for worker in workers:
                        worker.interrupt()
                    raise
        self._built += len(inputs)
        return [results[number] for number in range(len(inputs))]

    def _path(self, number: int) -> Path:
        # Never the same path twice: the dynamic loader would give back the first library loaded from it.
        return self._artifacts / f"kernel-{number}.so"

    def close(self) -> None:
        """End the children and delete what they made. From any thread; a build under way then ends at once."""
        for worker in self._workers:
            worker.close()
        self._scratch.close()
