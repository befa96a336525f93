"""`BuildWorker`: one child process that builds candidates, as its parent uses it."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from tunefarm_tuning.core.errors import InvalidInputError, TunefarmError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder.kernel_cache import KernelCache, Known
from tunefarm_tuning.measure.interfaces import BuildInput, BuildResult, Failure, told_facts
from tunefarm_tuning.process import (
    Access,
    ChildClosed,
    ChildCrashed,
    ChildFailed,
    ChildLimits,
    ChildProcess,
    ChildTimedOut,
)
from tunefarm_tuning.process.scratch import delete
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.workload.task import TuningTask

_MODULE = "tunefarm_tuning.tvm.children.build"
_OPEN_TIMEOUT_SEC = 300.0  # registering tensor cores' intrinsics takes ten seconds on a fast machine
_MAX_OPEN_TASKS = 128  # as in tvm.children.build, which cannot be imported here since it imports tvm
_GROWTH_BYTES = 1 << 30
_MIN_FREE_BYTES = 4 << 20

FULL_DISK = Failure(
    Outcome.INFRASTRUCTURE_ERROR,
    "the disk for temporary files is full where candidates are built",
    "disk-full",
)
"""A build that fails on a full disk says nothing about its candidate."""


class BuildWorker:
    """Builds one candidate at a time in a long-lived child.

    Concurrency: one caller; `close` from any thread.

    Args:
        work_dir: The worker's own folder; emptied whenever a child dies during a build.
        artifacts: The folder of the kernels that it builds.
        cache: Kernels that any worker built recently.
        timeout_sec: Wall-clock limit of one build; generating the task's design space does not count.
        limits: Limits of the child.
        growth_bytes: A child whose memory has grown by this much since its first build is replaced.
    """

    def __init__(
        self,
        work_dir: Path,
        artifacts: Path,
        *,
        cache: KernelCache,
        timeout_sec: float,
        limits: ChildLimits,
        growth_bytes: int = _GROWTH_BYTES,
    ) -> None:
        self._work_dir = work_dir
        self._cache = cache
        self._timeout_sec = timeout_sec
        self._growth_bytes = growth_bytes
        self._reset_work_dir()
        # If TVM and nvcc are killed, their temporary files are left in the worker's own folder.
        self._child = ChildProcess(
            _MODULE,
            limits=limits,
            access=Access(reads=(cache.folder,), writes=(work_dir, artifacts), programs=True),
            env={"TMPDIR": str(work_dir)},
        )
        self._opened: OrderedDict[str, None] = OrderedDict()
        self._pid: int | None = None
        self._first_bytes: int | None = None

    def spawn(self) -> None:
        """Start the child before there is work for it, without waiting."""
        self._child.spawn()

    def config_space(self, task: TuningTask) -> ConfigSpace:
        """Return a task's config space (see `Builder.config_space`)."""
        try:
            handle = self._open(task)
            return ConfigSpace.from_json(
                self._child.call("config_space", {"handle": handle}, timeout_sec=_OPEN_TIMEOUT_SEC)
            )
        except ChildClosed:
            raise
        except ChildFailed as error:
            raise InvalidInputError(
                f"TVM's schedule rules failed on {task.workload.name}: {error.message}",
                code="cannot-be-scheduled",
            ) from error

    def build(self, candidate: BuildInput, output: Path) -> BuildResult:
        """Build a candidate into `output`. Every failure is in the result."""
        handle = _handle(candidate.task)
        known = self._cache.known(handle, candidate.config)
        if known is not None and self._cache.give(handle, known.code, output):
            facts = self._cache.facts(handle, known.code)
            return BuildResult(config=known.config, build_sec=0.0, artifact_path=output, facts=facts)
        try:
            self._child.start()
        except TunefarmError as error:
            return BuildResult(config=candidate.config, build_sec=0.0, failure=Failure.of(error))
        started = time.monotonic()
        try:
            self._open(candidate.task)
            started = time.monotonic()
            reply = self._child.call(
                "build_kernel",
                {
                    "handle": handle,
                    "config": candidate.config.to_json(),
                    "output": str(output),
                    "work_dir": str(self._work_dir),
                    "recent": self._cache.prefix(handle),
                },
                timeout_sec=self._timeout_sec,
            )
        except TunefarmError as error:
            output.unlink(missing_ok=True)
            if isinstance(error, ChildFailed) and not isinstance(error, ChildClosed):
                self._reset_work_dir()
            return BuildResult(
                config=candidate.config,
                build_sec=time.monotonic() - started,
                failure=self._blamed(_failure(error)),
            )
        return self._result(candidate, reply, output)

    def interrupt(self) -> None:
        """End the running build, from another thread; the next build starts a new child."""
        self._child.kill()

    def close(self) -> None:
        self._child.close()

    def _open(self, task: TuningTask) -> str:
        """Open the task in the child unless it is open; return its handle."""
        if not self._child.alive or self._child.pid != self._pid:
            self._opened.clear()
        handle = _handle(task)
        if handle not in self._opened:
            self._child.call(
                "open_task",
                {"handle": handle, "ir": task.workload.ir, "target": task.target.to_json()},
                timeout_sec=_OPEN_TIMEOUT_SEC,
            )
            if self._child.pid != self._pid:
                self._pid, self._first_bytes = self._child.pid, None
            self._opened[handle] = None
            while len(self._opened) > _MAX_OPEN_TASKS:
                self._opened.popitem(last=False)
        return handle

    def _result(self, candidate: BuildInput, reply: dict[str, Any], output: Path) -> BuildResult:
        resident = int(reply["resident_bytes"])
        self._first_bytes = self._first_bytes or resident
        if resident - self._first_bytes > self._growth_bytes:
            self._child.kill()
        config = Config.from_json(reply["config"])
        build_sec, apply_sec = float(reply["build_sec"]), float(reply["apply_sec"])
        facts = told_facts(reply["facts"])
        if (failure := reply["failure"]) is not None:
            output.unlink(missing_ok=True)
            stated = self._blamed(Failure.from_json(failure))
            return BuildResult(
                config=config, build_sec=build_sec, apply_sec=apply_sec, failure=stated, facts=facts
            )
        handle, code = _handle(candidate.task), str(reply["code"])
        self._cache.learn(handle, candidate.config, Known(config, code))
        if reply["found"]:
            self._cache.note_use(handle, code)
            facts = self._cache.facts(handle, code)
        else:
            self._cache.keep(handle, code, output, facts)
        return BuildResult(
            config=config, build_sec=build_sec, apply_sec=apply_sec, artifact_path=output, facts=facts
        )

    def _blamed(self, failure: Failure) -> Failure:
        """Return the failure of a build; an infrastructure error if the disk is full."""
        try:
            full = shutil.disk_usage(self._work_dir).free < _MIN_FREE_BYTES
        except OSError:  # the builder was closed, and its folder deleted
            return failure
        return FULL_DISK if full else failure

    def _reset_work_dir(self) -> None:
        delete(self._work_dir)
        # Without its parents: a folder that the builder has deleted stays deleted.
        with contextlib.suppress(FileNotFoundError):
            self._work_dir.mkdir(exist_ok=True)


def _handle(task: TuningTask) -> str:
    return f"{task.workload.key} {task.target.key}"


def _failure(error: TunefarmError) -> Failure:
    """Return a candidate's failure for an error of the child."""
    if isinstance(error, ChildClosed):
        return Failure(Outcome.INFRASTRUCTURE_ERROR, "the builder was closed")
    if isinstance(error, ChildTimedOut):
        return Failure(Outcome.BUILD_TIMEOUT, error.message)
    if isinstance(error, ChildFailed):
        detail = error.detail.splitlines()
        last = f" (its last words: {detail[-1]})" if detail and not isinstance(error, ChildCrashed) else ""
        return Failure(Outcome.BUILD_CRASH, f"{error.message}{last}")
    if isinstance(error, InvalidInputError):
        return Failure(Outcome.INSTANTIATION_ERROR, error.message)
    return Failure(Outcome.BUILD_ERROR, error.message)
