"""`KernelSums`: whether tuned kernels pay by their own times, where timings of the whole network do not tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tunefarm_text.quantities import seconds
from tunefarm_tuning.compiler.alternatives import Candidate, SelectedAlternatives
from tunefarm_tuning.compiler.kernel_validation import CheckedKernel
from tunefarm_tuning.compiler.session import EntryInfo
from tunefarm_tuning.core.json_fields import JsonFields

_ALIKE = 1.05
"""As `CompileLimits.kernel_ratio`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSums(JsonFields):
    """What the kernels that are tuned take alone, summed over their calls in one inference.

    Attributes:
        tuned_sec: Tuned, as the search or the check of the kernel measured them, whichever is less: other work makes times
            longer, never shorter.
        untuned_sec: Untuned, the least that a check measured.
        kernels: Their number.
        is_bound: Whether `untuned_sec` is the whole untuned network's time: it is the most that the kernels can take, and their checks,
            beside other work, measured more.
    """

    tuned_sec: float
    untuned_sec: float
    kernels: int
    is_bound: bool = False

    @property
    def pays(self) -> bool:
        """Whether the tuned kernels take no longer than measurements of equal ones may differ by."""
        return self.tuned_sec <= _ALIKE * self.untuned_sec

    def __str__(self) -> str:
        untuned = f"{seconds(self.untuned_sec)} untuned"
        if self.is_bound:
            untuned = f"at most {untuned}, as the whole untuned network does"
        return f"the tuned kernels alone take {seconds(self.tuned_sec)} at their fastest, and {untuned}"


def kernel_sums(
    direct: Sequence[CheckedKernel],
    alternatives: SelectedAlternatives,
    entry: EntryInfo,
    *,
    network_sec: float,
) -> KernelSums:
    """Return the sums over the kernels of one of the library's functions, each with the algorithm that the network uses.

    Args:
        direct: The kernels, as they were checked.
        alternatives: Other algorithms in place of kernels.
        entry: The function.
        network_sec: The fastest inference of the untuned network.
    """
    chosen = {candidate.info.workload_key: candidate for candidate in alternatives.chosen}
    times: list[tuple[float, float]] = []
    for kernel in direct:
        untuned_sec = kernel.evidence.get("untuned_sec")
        candidate = chosen.get(kernel.task.workload_key)
        if not untuned_sec or not entry.kernels.intersection(kernel.task.names):
            continue
        if candidate is None and kernel.hit is None:
            continue
        tuned_sec = _least_sec(kernel) if candidate is None else _alternatives_sec(candidate)
        times.append((kernel.task.weight * tuned_sec, kernel.task.weight * min(untuned_sec)))
    untuned_sec = sum(untuned_sec for _, untuned_sec in times)
    return KernelSums(
        tuned_sec=sum(tuned_sec for tuned_sec, _ in times),
        untuned_sec=min(untuned_sec, network_sec),
        kernels=len(times),
        is_bound=untuned_sec > network_sec,
    )


def _alternatives_sec(candidate: Candidate) -> float:
    main_sec = candidate.tuned_sec if candidate.tuned.hit is None else _least_sec(candidate.tuned)
    return main_sec + sum(candidate.fixed_sec.values())


def _least_sec(kernel: CheckedKernel) -> float:
    checked = kernel.evidence.get("tuned_sec")
    known = [median(checked)] if checked else []
    if kernel.record is not None and kernel.record.cost_sec is not None:
        known.append(kernel.record.cost_sec)
    return float(min(known, default=0.0))
