"""Which records' kernels go into the artifact: those that build, give the right answer, and are not slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_tuning.compiler.session import CompileLimits, CompileSession, KernelInfo
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.records.coverage import CoveredTask, MissedTask, MissReason
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.comparison import Comparison
from tunefarm_tuning.reference.random_inputs import InputKind

_OTHERS_SEC = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedKernel:
    """A task and what became of its record.

    Attributes:
        record: None where there was none.
        miss: None where the record's kernel goes in.
        evidence: JSON: comparisons, samples; empty where nothing was run.
    """

    task: KernelInfo
    record: TuningRecord | None
    miss: MissedTask | None
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hit(self) -> CoveredTask | None:
        """The task as covered; None where the record was left out."""
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
        """Return it as a kernel that is called so often per inference."""
        return replace(self, task=replace(self.task, weight=weight))


def missed(task: KernelInfo, reason: MissReason, message: str = "") -> MissedTask:
    """Return the task as missed."""
    return MissedTask(
        workload_key=task.workload_key,
        name=task.name,
        weight=task.weight,
        reason=reason,
        message=clean(message, 500),
    )


class KernelCheck:
    """Builds and runs one kernel after the other.

    Args:
        compiler: Has the network loaded.
        device: Where kernels run.
        folder: For libraries; they are deleted as soon as they have been run.
        seed: Of the inputs.
        place: Puts a built library where it will be run from. The default leaves it as it is; tests
            put another in its place.
    """

    def __init__(
        self,
        compiler: CompileSession,
        device: DeviceRun,
        folder: Path,
        *,
        seed: int,
        limits: CompileLimits,
        place: Callable[[str, Path], Path] = lambda _name, path: path,
    ) -> None:
        self._compiler = compiler
        self._device = device
        self._folder = folder
        self._seed = seed
        self._limits = limits
        self._place = place

    def check(self, task: KernelInfo, record: TuningRecord) -> CheckedKernel:
        """Build a record's kernel and compare it with the untuned one: the answer first, then the time.

        The untuned one has the default schedule. Where the two disagree, plain loops say which of them is right.
        """
        # The name is ours to choose: it goes into no message, and a path is never used twice.
        tuned, untuned, plain = (
            self._folder / f"{task.workload_key}-{which}.so" for which in ("tuned", "untuned", "plain")
        )
        try:
            self._build_tuned(task, record, tuned)
            try:
                self._compiler.build_kernel(task.name, untuned, None)
                return self._check(task, record, tuned, untuned)
            except _LeftOut as left_out:
                if left_out.reason not in (MissReason.WRONG_ANSWER, MissReason.UNCHECKED):
                    raise
                self._compiler.build_kernel(task.name, plain, None, plain=True)
                return self._check(task, record, tuned, plain)
        except _LeftOut as left_out:
            miss = missed(task, left_out.reason, left_out.message)
            return CheckedKernel(task=task, record=record, miss=miss, evidence=left_out.evidence)
        finally:
            for path in (tuned, untuned, plain):
                path.unlink(missing_ok=True)

    def check_any(self, task: KernelInfo, records: Sequence[TuningRecord]) -> CheckedKernel:
        """Check the first record whose space still is one; the very first where none is.

        Args:
            task: The kernel's.
            records: One at least; each of another space.
        """
        checked = [self.check(task, records[0])]
        for record in records[1:]:
            if not _is_of_a_gone_space(checked[-1]):
                break
            checked.append(self.check(task, record))
        return checked[0] if _is_of_a_gone_space(checked[-1]) else checked[-1]

    def time_others(
        self, kernels: Sequence[CheckedKernel], on_step: Callable[[], None]
    ) -> list[CheckedKernel]:
        """Time the untuned kernels of tasks that were not compared: what they take says what is left to win."""
        until = time.monotonic() + _OTHERS_SEC
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
        """Add one call's time of the untuned kernel to the evidence; as it was where it cannot be built or run."""
        path = self._folder / f"{kernel.task.workload_key}-alone.so"
        try:
            self._compiler.build_kernel(kernel.task.name, path, None)
            call_sec = self._run_untuned(kernel.task, path, InputKind.NORMAL, timeout_sec=timeout_sec)
        except ChildClosed:
            raise
        except (ChildFailed, InvalidModelError, RunFailed):
            return kernel
        finally:
            path.unlink(missing_ok=True)
        return replace(
            kernel,
            evidence={"comparisons": [], "tuned_sec": [], **kernel.evidence, "untuned_sec": [call_sec]},
        )

    def time_fixed(self, kernel: KernelInfo, *, runs: int) -> float | None:
        """Return the median of some calls of a kernel that comes scheduled; None where it cannot be built or run."""
        path = self._folder / f"{kernel.name}.so"
        try:
            self._compiler.build_kernel(kernel.name, path, None)
            timeout_sec = self._limits.kernel_sec
            return median(
                self._run_untuned(kernel, path, InputKind.NORMAL, timeout_sec=timeout_sec)
                for _ in range(runs)
            )
        except ChildClosed:
            raise
        except (ChildFailed, InvalidModelError, RunFailed):
            return None
        finally:
            path.unlink(missing_ok=True)

    def _run_untuned(self, task: KernelInfo, path: Path, kind: InputKind, *, timeout_sec: float) -> float:
        args = [spec.to_json() for spec in task.args]
        reply = self._device.call(
            "run_untuned",
            {"path": str(path), "args": args, "seed": self._seed, "kind": kind.value},
            timeout_sec=timeout_sec,
        )
        return float(reply["call_sec"])

    def _check(self, task: KernelInfo, record: TuningRecord, tuned: Path, untuned: Path) -> CheckedKernel:
        placed = self._place(task.name, tuned)
        evidence = self._compare(task, placed, untuned, InputKind.NORMAL, seconds=True)
        if any(one["comparable"] < one["elements"] for one in evidence["comparisons"]):
            # A root of a negative number: such elements are compared as NaN only, so once more on positive ones.
            positive = self._compare(task, placed, untuned, InputKind.POSITIVE, seconds=False)
            evidence["comparisons_positive"] = positive["comparisons"]
        tuned_sec, untuned_sec = median(evidence["tuned_sec"]), median(evidence["untuned_sec"])
        if tuned_sec > self._limits.kernel_ratio * untuned_sec:
            raise _LeftOut(
                MissReason.SLOWER_THAN_UNTUNED,
                f"{tuned_sec * 1e6:.4g} µs tuned, {untuned_sec * 1e6:.4g} µs untuned",
                evidence,
            )
        return CheckedKernel(task=task, record=record, miss=None, evidence=evidence)

    def _build_tuned(self, task: KernelInfo, record: TuningRecord, path: Path) -> None:
        try:
            self._compiler.build_kernel(task.name, path, record)
        except InvalidInputError as error:
            if error.code not in (MissReason.SPACE_CHANGED, MissReason.DOES_NOT_APPLY):
                raise
            raise _LeftOut(MissReason(error.code), error.message) from error
        except ChildClosed:
            raise
        except ChildFailed as error:
            raise _LeftOut(MissReason.DOES_NOT_APPLY, f"the compiler died of it: {error.message}") from error

    def _compare(
        self, task: KernelInfo, tuned: Path, untuned: Path, kind: InputKind, *, seconds: bool
    ) -> dict[str, Any]:
        try:
            evidence = self._run_both(task, tuned, untuned, kind, seconds=seconds)
        except _LeftOut as left_out:
            if left_out.code != "run-crashed":
                raise
            # Once more in a fresh process: a kernel before it may have spoilt the old one's memory.
            evidence = self._run_both(task, tuned, untuned, kind, seconds=seconds)
        wrong = [one for one in evidence["comparisons"] if not one["ok"]]
        if wrong:
            first = Comparison.from_json(wrong[0])
            raise _LeftOut(MissReason.WRONG_ANSWER, f"{first.name}: {first.message}", evidence)
        return evidence

    def _run_both(
        self, task: KernelInfo, tuned: Path, untuned: Path, kind: InputKind, *, seconds: bool
    ) -> dict[str, Any]:
        timeout = self._limits.kernel_sec
        try:
            self._run_untuned(task, untuned, kind, timeout_sec=timeout)
        except RunFailed as error:
            raise _LeftOut(
                MissReason.UNCHECKED, f"the untuned kernel: {error.message}", code=error.code
            ) from error
        try:
            return self._device.call(
                "compare_kernel",
                {"path": str(tuned), "untuned": str(untuned), "time": seconds, "rounding": task.rounding},
                timeout_sec=timeout,
            )
        except RunFailed as error:
            raise _LeftOut(MissReason.CRASHED, error.message, code=error.code) from error


def _is_of_a_gone_space(kernel: CheckedKernel) -> bool:
    return kernel.miss is not None and kernel.miss.reason is MissReason.SPACE_CHANGED


class _LeftOut(Exception):  # noqa: N818  (an outcome, caught in `KernelCheck.check`)
    def __init__(
        self, reason: MissReason, message: str, evidence: Mapping[str, Any] | None = None, code: str = ""
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.evidence = evidence or {}
        self.code = code
