"""The phase ``check-kernels``: validate the kernels of the records that hold for this target and device."""

from __future__ import annotations

from dataclasses import dataclass

from tunefarm_tuning.compiler.alternatives import Candidate, find_candidates
from tunefarm_tuning.compiler.kernel_validation import (
    UNTUNED_BUDGET_SEC,
    CheckedKernel,
    KernelValidator,
    missed,
)
from tunefarm_tuning.compiler.phases.load import LoadedModel
from tunefarm_tuning.compiler.request import LAST_CHECKS_SEC, CompileRequest
from tunefarm_tuning.process.model_child import compiling
from tunefarm_tuning.records.coverage import MissReason

_AHEAD_SEC = 2 * LAST_CHECKS_SEC
"""Seconds that alternatives, building and the last checks take, as a rule."""


_UNTUNED_ALTERNATIVES_SEC = 10.0
"""Time budget for timing alternatives without a tuned kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedKernels:
    """The result of the phase ``check-kernels``.

    Attributes:
        direct: Every task of the network, and whether its tuned kernel passed.
        candidates: Alternatives whose kernels all work, tuned or not.
    """

    direct: tuple[CheckedKernel, ...]
    candidates: tuple[Candidate, ...]


def check_kernels(request: CompileRequest, loaded: LoadedModel) -> CheckedKernels:
    """Check the kernels of the records that hold here, and those of other algorithms."""
    progress, tasks = request.progress, loaded.info.tasks
    with progress.phase("check-kernels"), compiling("compiling the kernels"):
        validator = KernelValidator(
            loaded.compiler,
            loaded.runner,
            request.folder,
            seed=request.seed,
            limits=request.limits,
            findings=request.findings,
        )
        kernels: list[CheckedKernel] = []
        for number, task in enumerate(tasks, start=1):
            record, reason, message = request.find_record(task)
            if record is not None:
                kernels.append(validator.check_any(task, [record, *request.history.others(record)]))
            else:
                miss = missed(task, reason or MissReason.NO_RECORD, message)
                kernels.append(CheckedKernel(task=task, record=None, miss=miss))
            progress.step(number / len(tasks))
        if any(kernel.hit is not None for kernel in kernels):
            kernels = validator.time_missed(
                kernels,
                lambda: progress.step(1.0),
                budget_sec=request.spare_sec(UNTUNED_BUDGET_SEC, ahead_sec=_AHEAD_SEC),
            )
        candidates, kernels = find_candidates(
            loaded.info.alternatives,
            kernels,
            lambda task: request.find_record(task)[0],
            validator,
            lambda: progress.step(1.0),
            # Of default schedules that failed as a whole, none is to be trusted.
            untuned_sec=0.0 if loaded.untuned.unscheduled else request.spare_sec(_UNTUNED_ALTERNATIVES_SEC),
        )
    return CheckedKernels(direct=tuple(kernels), candidates=tuple(candidates))
