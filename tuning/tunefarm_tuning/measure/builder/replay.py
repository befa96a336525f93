"""`ReplayBuilder`: a builder without a compiler, for tests, demonstrations and the comparison of tuners."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from tunefarm_tuning.core.cancellation import Closing
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.build_pool import BuildPool
from tunefarm_tuning.measure.interfaces import BuildInput, BuildResult, Builds, Failure
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask


class ReplayBuilder(Closing):
    """Implements `Builder`. Its artifact is a file with the config, which a `ReplayRunner` reads.

    Args:
        spaces: Config spaces by workload key.
        apply: Returns a config as applied; by default configs stay as they are.
        fail: Returns why a config does not build; None if it builds.
        recorded: Returns the seconds of a recorded build, and its failure.
        wait: Waits for the seconds of a recorded build; a test's own may return early.
        work_dir: Folder of the artifacts; by default a scratch folder.
        workers: How many builds run in parallel in the background, as those of a `LocalBuilder`; 0 builds in the caller's
            thread, each when its result is taken.
    """

    def __init__(
        self,
        spaces: Mapping[str, ConfigSpace],
        *,
        apply: Callable[[Config], Config] | None = None,
        fail: Callable[[TuningTask, Config], Failure | None] | None = None,
        recorded: Callable[[TuningTask, Config], tuple[float, Failure | None]] | None = None,
        wait: Callable[[float], object] = time.sleep,
        work_dir: Path | None = None,
        workers: int = 0,
    ) -> None:
        self._spaces = dict(spaces)
        self._apply = apply
        self._fail = fail
        self._recorded = recorded
        self._wait = wait
        # A scratch folder is deleted even if its owner is killed.
        self._scratch = ScratchDir() if work_dir is None else None
        self._work_dir = self._scratch.path if self._scratch else work_dir or Path()
        self._numbers = itertools.count()
        self._num_workers = workers
        self._pool = BuildPool([_Worker(self._build) for _ in range(workers)], self._fresh_path)

    @property
    def workers(self) -> int:
        return max(self._num_workers, 1)

    def config_space(self, task: TuningTask) -> ConfigSpace:
        space = self._spaces.get(task.workload.key)
        if space is None:
            raise InvalidInputError(
                f"workload {task.workload.name} cannot be scheduled", code="no-config-space"
            )
        return space

    def build(self, inputs: Sequence[BuildInput]) -> list[BuildResult]:
        with closing(self.build_each(inputs)) as builds:
            results = dict(builds)
        return [results[number] for number in range(len(inputs))]

    def build_each(self, inputs: Sequence[BuildInput]) -> Builds:
        return self._pool.build_each(inputs) if self._num_workers else self._build_each(inputs)

    def _build_each(self, inputs: Sequence[BuildInput]) -> Generator[tuple[int, BuildResult], None, None]:
        for number, candidate in enumerate(inputs):
            yield number, self._build(candidate, self._fresh_path())

    def _build(self, candidate: BuildInput, output: Path) -> BuildResult:
        space = self._spaces.get(candidate.task.workload.key)
        if space is None or space.row_of(candidate.config) is None:
            failure = Failure(Outcome.INSTANTIATION_ERROR, "the config is of another space")
            return BuildResult(config=candidate.config, build_sec=0.0, failure=failure)
        config = self._apply(candidate.config) if self._apply else candidate.config
        if self._fail and (reason := self._fail(candidate.task, config)):
            return BuildResult(config=config, build_sec=0.0, failure=reason)
        build_sec, failed = self._recorded(candidate.task, config) if self._recorded else (0.0, None)
        if build_sec > 0.0:
            self._wait(build_sec)
        if failed is not None:
            return BuildResult(config=config, build_sec=build_sec, failure=failed)
        output.write_text(json.dumps(config.to_json()), encoding="utf-8")
        return BuildResult(config=config, build_sec=build_sec, artifact_path=output)

    def _fresh_path(self) -> Path:
        return self._work_dir / f"{next(self._numbers)}.json"

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.close()


class _Worker:
    """Implements `PoolWorker`. `ReplayBuilder.wait` ends a wait, not the worker."""

    def __init__(self, build: Callable[[BuildInput, Path], BuildResult]) -> None:
        self.build = build

    def interrupt(self) -> None:
        """Do nothing: a build only waits."""
