"""Validates tuned kernels: only those that build, give the right answer and are not slow go into the artifact."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_text import quantities
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession, KernelInfo
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.measure.kernel_timing import CALLS_ALONE, LONG_SEC
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.records.coverage import CoveredTask, MissedTask, MissReason
from tunefarm_tuning.records.findings import Findings, ScopedFindings
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.comparison import Comparison
from tunefarm_tuning.reference.random_inputs import InputKind

_numbers = itertools.count()
"""Of the libraries of single kernels: no path is used twice, as the dynamic loader would return the first library."""

UNTUNED_BUDGET_SEC = 20.0
"""Time budget for timing the untuned kernels of tasks without a tuned one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedKernel:
    """A task, its record, and whether the record's kernel passed.

    Attributes:
        record: None if the history has none.
        miss: Why the untuned kernel is used; None if the record's kernel passed.
        evidence: JSON: ``comparisons``, and ``tuned_sec`` and ``untuned_sec`` (seconds per call); empty if nothing was run.
    """

    task: KernelInfo
    record: TuningRecord | None
    miss: MissedTask | None
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hit(self) -> CoveredTask | None:
        """The task as covered; None if it uses its untuned kernel."""
        if self.record is None or self.miss is not None:
            return None
        tuned, untuned = self.evidence.get("tuned_sec"), self.evidence.get("untuned_sec")
        return CoveredTask(
            workload_key=self.task.workload_key,
            name=self.task.name,
            weight=self.task.weight,
            record_cost_sec=self.record.cost_sec or 0.0,
            tuned_sec=median(tuned) if tuned else None,
            untuned_sec=median(untuned) if untuned else None,
        )

    def with_weight(self, weight: int) -> CheckedKernel:
        """Return the same kernel with another number of calls per inference."""
        miss = None if self.miss is None else replace(self.miss, weight=weight)
        return replace(self, task=replace(self.task, weight=weight), miss=miss)


def missed(task: KernelInfo, reason: MissReason, message: str = "") -> MissedTask:
    """Return a task that uses its untuned kernel, for this reason."""
    return MissedTask(
        workload_key=task.workload_key,
        name=task.name,
        weight=task.weight,
        reason=reason,
        message=clean(message, 500),
    )


def kernel_facts(
    task: KernelInfo, record: TuningRecord | None, *, seed: int, limits: CompileLimits
) -> dict[str, Any]:
    """Return what a finding about a kernel depends on; without a record, about the untuned one."""
    return {
        "workload": task.workload_key,
        "args": [spec.to_json() for spec in task.args],
        "rounding": task.rounding,
        "seed": seed,
        "slower": limits.kernel_ratio,
        **({} if record is None else {"space": record.space_key, "config": record.config.to_json()}),
    }


def fixed_facts(kernel: KernelInfo, of: str, runs: int) -> dict[str, Any]:
    """Return what a finding about a kernel with a fixed schedule depends on; the arguments are those of `KernelValidator.time_fixed`."""
    return {"of": of, "args": [spec.to_json() for spec in kernel.args], "runs": runs}


class KernelValidator:
    """Builds each tuned kernel, compares it with the untuned one, and times both.

    Concurrency: one caller.

    Args:
        compiler: Has loaded the network.
        device: Runs kernels.
        folder: Where libraries are written. They are deleted as soon as they have been run.
        seed: Seed of the inputs.
        limits: Limits of a build and of a run, and how slow a tuned kernel may be.
        findings: What earlier compiles found out. Kernels that passed there, or were clearly slower, are not built and run again; nor are
            those that were just slower, if the compile shall be done soon (`CompileLimits.ablation_sec` 0).
        substitute: Given a kernel's name and its built library, returns the library to run. The default returns the same;
            tests return another.
    """

    def __init__(
        self,
        compiler: CompileSession,
        device: DeviceRun,
        folder: Path,
        *,
        seed: int,
        limits: CompileLimits,
        findings: ScopedFindings | None = None,
        substitute: Callable[[str, Path], Path] = lambda _name, path: path,
    ) -> None:
        self._compiler = compiler
        self._device = device
        self._folder = folder
        self._seed = seed
        self._limits = limits
        self._findings = findings or Findings().within()
        self._substitute = substitute

    def check(self, task: KernelInfo, record: TuningRecord) -> CheckedKernel:
        """Build a record's kernel and compare it with the untuned one: first the results, then the times.

        The untuned kernel has the default schedule. If the two disagree, unscheduled loops decide which of them is right.

        Raises:
            DeviceLostError: If the device is away.
        """
        facts = kernel_facts(task, record, seed=self._seed, limits=self._limits)
        if (known := self._findings.find("kernel", facts)) is not None:
            return CheckedKernel(task=task, record=record, miss=None, evidence=known)
        in_a_hurry = self._limits.ablation_sec == 0
        slow = self._findings.find(
            "slow-kernel", facts, lambda slow: bool(slow.get("clear", True)) or in_a_hurry
        )
        if slow is not None:
            miss = missed(task, MissReason.SLOWER_THAN_UNTUNED, str(slow["message"]))
            return CheckedKernel(task=task, record=record, miss=miss, evidence=slow["evidence"])
        checked = self._check_anew(task, record)
        if checked.hit is not None:
            self._findings.note("kernel", facts, checked.evidence)
        elif checked.miss is not None and checked.miss.reason is MissReason.SLOWER_THAN_UNTUNED:
            clear = self._is_clearly_slow(checked)
            finding = {"message": checked.miss.message, "evidence": checked.evidence, "clear": clear}
            self._findings.note("slow-kernel", facts, finding)
        return checked

    def _is_clearly_slow(self, checked: CheckedKernel) -> bool:
        """Return whether even the fastest sample of a slow kernel is too slow: other work makes samples longer, never shorter."""
        tuned_sec, untuned_sec = checked.evidence["tuned_sec"], checked.evidence["untuned_sec"]
        return bool(min(tuned_sec) > self._limits.kernel_ratio * max(untuned_sec))

    def _check_anew(self, task: KernelInfo, record: TuningRecord) -> CheckedKernel:
        # File names appear in no message.
        tuned, untuned, unscheduled = self._fresh_path(), self._fresh_path(), self._fresh_path()
        try:
            self._build_tuned(task, record, tuned)
            try:
                self._compiler.build_kernel(task.name, untuned, None)
                return self._check(task, record, tuned, untuned)
            except _Rejected as rejected:
                if rejected.reason not in (MissReason.WRONG_ANSWER, MissReason.UNCHECKED):
                    raise
                self._compiler.build_kernel(task.name, unscheduled, None, default_schedules=False)
                return self._check(task, record, tuned, unscheduled)
        except _Rejected as rejected:
            miss = missed(task, rejected.reason, rejected.message)
            return CheckedKernel(task=task, record=record, miss=miss, evidence=rejected.evidence)
        finally:
            for path in (tuned, untuned, unscheduled):
                path.unlink(missing_ok=True)

    def check_any(self, task: KernelInfo, records: Sequence[TuningRecord]) -> CheckedKernel:
        """Check the first record whose space still exists, else the first record. Each record has another space."""
        checked = [self.check(task, records[0])]
        for record in records[1:]:
            if not _space_changed(checked[-1]):
                break
            checked.append(self.check(task, record))
        return checked[0] if _space_changed(checked[-1]) else checked[-1]

    def time_missed(
        self,
        kernels: Sequence[CheckedKernel],
        on_step: Callable[[], None],
        *,
        budget_sec: float = UNTUNED_BUDGET_SEC,
    ) -> list[CheckedKernel]:
        """Time the untuned kernels of the tasks without a tuned kernel: the time shows what tuning them could still gain."""
        until = time.monotonic() + budget_sec
        timed = []
        for kernel in kernels:
            left_sec = until - time.monotonic()
            miss, timed_before = kernel.miss, kernel.evidence.get("untuned_sec")
            runs = miss is not None and miss.reason is not MissReason.UNCHECKED
            if runs and not timed_before and left_sec > 0:
                kernel = self.time_untuned(kernel, timeout_sec=max(1.0, left_sec))
            timed.append(kernel)
            on_step()
        return timed

    def time_untuned(self, kernel: CheckedKernel, *, timeout_sec: float) -> CheckedKernel:
        """Add the times of calls of the untuned kernel to the evidence; return it unchanged if that does not build or run."""
        path = self._fresh_path()
        facts = kernel_facts(kernel.task, None, seed=self._seed, limits=self._limits)
        known = self._findings.find("untuned", facts)
        try:
            if known is not None:
                calls_sec = [float(sec) for sec in known["calls_sec"]]
            else:
                self._compiler.build_kernel(kernel.task.name, path, None, packs=False)
                calls_sec = self._time_alone(kernel.task, path, CALLS_ALONE, timeout_sec=timeout_sec)
                self._findings.note("untuned", facts, {"calls_sec": calls_sec})
        except ChildClosed:
            raise
        except (ChildFailed, InvalidModelError, RunFailed):
            return kernel
        finally:
            path.unlink(missing_ok=True)
        return replace(
            kernel,
            evidence={"comparisons": [], "tuned_sec": [], **kernel.evidence, "untuned_sec": calls_sec},
        )

    def time_fixed(self, kernel: KernelInfo, of: str, *, runs: int) -> float | None:
        """Return the median seconds of `runs` calls of a kernel with a fixed schedule; None if it does not build or run.

        `of` says which kernel of which alternative it is, in any network.
        """
        path = self._fresh_path()
        facts = fixed_facts(kernel, of, runs)
        if (known := self._findings.find("fixed", facts)) is not None:
            return float(known["call_sec"])
        try:
            self._compiler.build_kernel(kernel.name, path, None, packs=False)
            call_sec = median(self._time_alone(kernel, path, runs, timeout_sec=self._limits.kernel_sec))
            self._findings.note("fixed", facts, {"call_sec": call_sec})
            return call_sec
        except ChildClosed:
            raise
        except (ChildFailed, InvalidModelError, RunFailed):
            return None
        finally:
            path.unlink(missing_ok=True)

    def _fresh_path(self) -> Path:
        """Return a path for a kernel's library, without its names: the child that tells them may have been taken over."""
        return self._folder / f"kernel-{next(_numbers)}.so"

    def _time_alone(self, task: KernelInfo, path: Path, calls: int, *, timeout_sec: float) -> list[float]:
        """Return the seconds of so many calls of a kernel; of one call if it takes long."""
        calls_sec: list[float] = []
        while len(calls_sec) < calls and not (calls_sec and calls_sec[0] > LONG_SEC):
            # A device of an older release times one call at a time.
            left = calls - len(calls_sec)
            calls_sec += self._run_untuned(task, path, InputKind.NORMAL, left, timeout_sec=timeout_sec)
        return calls_sec

    def _run_untuned(
        self, task: KernelInfo, path: Path, kind: InputKind, calls: int = 1, *, timeout_sec: float
    ) -> list[float]:
        args = [spec.to_json() for spec in task.args]
        reply = self._device.call(
            "run_untuned",
            {"path": str(path), "args": args, "seed": self._seed, "kind": kind.value, "calls": calls},
            timeout_sec=timeout_sec,
        )
        return [float(sec) for sec in reply.get("calls_sec") or [reply["call_sec"]]]

    def _check(self, task: KernelInfo, record: TuningRecord, tuned: Path, untuned: Path) -> CheckedKernel:
        library = self._substitute(task.name, tuned)
        evidence = self._compare(task, library, untuned, InputKind.NORMAL, seconds=True)
        if any(comparison["comparable"] < comparison["elements"] for comparison in evidence["comparisons"]):
            # The root of a negative number is only compared as NaN, so compare again on positive inputs.
            positive = self._compare(task, library, untuned, InputKind.POSITIVE, seconds=False)
            evidence["comparisons_positive"] = positive["comparisons"]
        tuned_sec, untuned_sec = median(evidence["tuned_sec"]), median(evidence["untuned_sec"])
        if tuned_sec > self._limits.kernel_ratio * untuned_sec:
            raise _Rejected(
                MissReason.SLOWER_THAN_UNTUNED,
                f"{quantities.seconds(tuned_sec)} tuned, {quantities.seconds(untuned_sec)} untuned",
                evidence,
            )
        return CheckedKernel(task=task, record=record, miss=None, evidence=evidence)

    def _build_tuned(self, task: KernelInfo, record: TuningRecord, path: Path) -> None:
        try:
            self._compiler.build_kernel(task.name, path, record)
        except InvalidInputError as error:
            if error.code not in (MissReason.SPACE_CHANGED, MissReason.DOES_NOT_APPLY):
                raise
            raise _Rejected(MissReason(error.code), error.message) from error
        except ChildClosed:
            raise
        except ChildFailed as error:
            raise _Rejected(MissReason.DOES_NOT_APPLY, f"the compiler crashed: {error.message}") from error

    def _compare(
        self, task: KernelInfo, tuned: Path, untuned: Path, kind: InputKind, *, seconds: bool
    ) -> dict[str, Any]:
        try:
            evidence = self._run_both(task, tuned, untuned, kind, seconds=seconds)
        except _Rejected as rejected:
            if rejected.code != "run-crashed":
                raise
            # Again in a new process: an earlier kernel may have corrupted the memory of this one.
            evidence = self._run_both(task, tuned, untuned, kind, seconds=seconds)
        wrong = [comparison for comparison in evidence["comparisons"] if not comparison["ok"]]
        if wrong:
            first = Comparison.from_json(wrong[0])
            raise _Rejected(MissReason.WRONG_ANSWER, f"{first.name}: {first.message}", evidence)
        return evidence

    def _run_both(
        self, task: KernelInfo, tuned: Path, untuned: Path, kind: InputKind, *, seconds: bool
    ) -> dict[str, Any]:
        timeout = self._limits.kernel_sec
        try:
            self._run_untuned(task, untuned, kind, timeout_sec=timeout)
        except RunFailed as error:
            raise _Rejected(
                MissReason.UNCHECKED, f"the untuned kernel: {error.message}", code=error.code
            ) from error
        try:
            return self._device.call(
                "compare_kernel",
                {"path": str(tuned), "untuned": str(untuned), "time": seconds, "rounding": task.rounding},
                timeout_sec=timeout,
            )
        except RunFailed as error:
            raise _Rejected(MissReason.CRASHED, error.message, code=error.code) from error


def _space_changed(kernel: CheckedKernel) -> bool:
    return kernel.miss is not None and kernel.miss.reason is MissReason.SPACE_CHANGED


class _Rejected(Exception):  # noqa: N818  (an outcome, caught in `KernelValidator.check`)
    """A tuned kernel did not pass."""

    def __init__(
        self, reason: MissReason, message: str, evidence: Mapping[str, Any] | None = None, code: str = ""
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.evidence = evidence or {}
        self.code = code
