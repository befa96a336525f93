"""`LocalBuilder`: builds candidates in long-lived child processes of this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from queue import SimpleQueue

from tunefarm_tuning.builder.kernel_cache import KernelCache
from tunefarm_tuning.builder.scratch import ScratchDir
from tunefarm_tuning.builder.worker import BuildWorker
from tunefarm_tuning.child import ChildLimits
from tunefarm_tuning.config_space import ConfigSpace
from tunefarm_tuning.measure import BuildInput, BuildResult, Closing
from tunefarm_tuning.task import TuningTask

_MAX_DEFAULT_WORKERS = 16
_CACHE_BYTES = 64 << 20  # some two thousand kernels


class LocalBuilder(Closing):
    """Implements `Builder` (see there).

    Children start when there is work for them, keep a task's design space while they live, and are replaced after a
    crash, a time-out, or when they have grown. A time-out kills what the candidate's child started, too. A kernel whose
    code was built lately is not built again (see `KernelCache`).

    Args:
        workers: Children at most. By default one per core that this process may use, up to 16; each takes
            about 250 MB.
        timeout_sec: Wall-clock of one build.
        work_dir: Where the private folder for artifacts is made; the system's folder for temporary files by default.
        limits: What each child may use.
        cache_bytes: Of kernels kept to be given out again.
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
            raise ValueError(f"workers is {count}, but a builder needs one at least")
        self._scratch = ScratchDir(work_dir)
        self._artifacts = self._scratch.path / "kernels"
        self._artifacts.mkdir()
        recent = self._scratch.path / "recent"
        recent.mkdir()
        cache = KernelCache(recent, max_bytes=cache_bytes)
        self._workers = [
            BuildWorker(
                self._scratch.path / f"worker-{i}", cache=cache, timeout_sec=timeout_sec, limits=limits
            )
            for i in range(count)
        ]
        self._built = 0
        self._caller = threading.Lock()

    def config_space(self, task: TuningTask) -> ConfigSpace:
        with self._caller:
            return self._workers[0].config_space(task)

    def build(self, inputs: Sequence[BuildInput]) -> list[BuildResult]:
        results = dict(self.build_each(inputs))
        return [results[number] for number in range(len(inputs))]

    def build_each(self, inputs: Sequence[BuildInput]) -> Generator[tuple[int, BuildResult], None, None]:
        with self._caller:
            yield from self._build(inputs)

    def _build(self, inputs: Sequence[BuildInput]) -> Generator[tuple[int, BuildResult], None, None]:
        jobs: SimpleQueue[int | None] = SimpleQueue()
        done: SimpleQueue[tuple[int, BuildResult] | BaseException] = SimpleQueue()
        first, self._built = self._built, self._built + len(inputs)
        for number in range(len(inputs)):
            jobs.put(number)
        workers = self._workers[: len(inputs)]
        for _ in workers:
            jobs.put(None)
        stopped = threading.Event()

        def work(worker: BuildWorker) -> None:
            try:
                while (number := jobs.get()) is not None and not stopped.is_set():
                    done.put((number, worker.build(inputs[number], self._path(first + number))))
            except BaseException as error:  # noqa: BLE001  (the caller's thread raises it)
                done.put(error)

        threads = [
            threading.Thread(target=work, args=(worker,), name=f"build-{i}", daemon=True)
            for i, worker in enumerate(workers)
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in inputs:
                one = done.get()
                if isinstance(one, BaseException):
                    raise one
                yield one
        except BaseException:  # an interrupt, or a caller that needs no more: do not sit out the rest
            stopped.set()
            for worker in workers:
                worker.interrupt()
            raise
        finally:
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            _delete_unclaimed(done)

    def _path(self, number: int) -> Path:
        # Never the same path twice: the dynamic loader would give back the first library loaded from it.
        return self._artifacts / f"kernel-{number}.so"

    def close(self) -> None:
        """End the children and delete what they made. From any thread; a build under way then ends at once."""
        for worker in self._workers:
            worker.close()
        self._scratch.close()


def _delete_unclaimed(done: SimpleQueue[tuple[int, BuildResult] | BaseException]) -> None:
    while not done.empty():
        one = done.get()
        if not isinstance(one, BaseException) and one[1].artifact_path is not None:
            one[1].artifact_path.unlink(missing_ok=True)
