"""Other algorithms for the kernels of a network: those that can be used, and those that the network uses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_tuning.compiler.kernel_validation import (
    CheckedKernel,
    KernelValidator,
    fixed_facts,
    kernel_facts,
    missed,
)
from tunefarm_tuning.compiler.session import AlternativeInfo, CompileLimits, KernelInfo
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.findings import ScopedFindings
from tunefarm_tuning.records.record import TuningRecord

_FIXED_KERNEL_RUNS = 3
_LEAST_FLOPS_SHARE = 0.01
"""An alternative without a tuned kernel is timed if its direct kernel has this share of the operations of all that have alternatives."""


@dataclass(slots=True, kw_only=True)
class Candidate:
    """An alternative, and the direct kernel that it would replace.

    Attributes:
        tuned: Its kernel that is a tuning task: tuned if a record passed, else by its default schedule.
        fixed_sec: Seconds per call of the alternative's other kernels, by name.
        network_gain_sec: Seconds per inference that the network gains by it, timed with and without; None if that was not
            timed.
        reason: Why the network does not use it; empty if it does.
    """

    info: AlternativeInfo
    direct: CheckedKernel
    tuned: CheckedKernel
    fixed_sec: dict[str, float]
    chosen: bool = False
    network_gain_sec: float | None = None
    reason: str = ""

    @property
    def direct_sec(self) -> float:
        """Seconds per call of the direct kernel, tuned if its record passed; infinite if it was not timed."""
        return _used_sec(self.direct)

    @property
    def tuned_sec(self) -> float:
        """Seconds per call of the alternative's tuned kernel, or of its untuned form where that is used."""
        return _used_sec(self.tuned)

    @property
    def sum_sec(self) -> float:
        """Seconds per call of all its kernels, each timed by itself."""
        return self.tuned_sec + sum(self.fixed_sec.values())

    def facts(self) -> dict[str, Any]:
        """Return what a verdict on it depends on: the kernels that it replaces and has, and those beside it in the graph."""
        records = [kernel.record if kernel.hit else None for kernel in (self.tuned, self.direct)]
        return {
            "workload": self.info.workload_key,
            "algorithm": self.info.algorithm,
            "library": self.info.library_version,
            "configs": [
                None if record is None else [record.space_key, record.config.to_json()] for record in records
            ],
            "neighbours": list(self.info.neighbours),
        }

    @property
    def expected_gain_sec(self) -> float:
        """Seconds per inference that the network would gain if its kernels took as long as by themselves."""
        return self.info.tuned.weight * (self.direct_sec - self.sum_sec)

    def to_json(self) -> dict[str, Any]:
        """Return the report's entry."""
        gain = self.network_gain_sec
        known = self.direct_sec != float("inf")
        return {
            "workload_key": self.info.workload_key,
            "name": self.direct.task.name,
            "algorithm": self.info.algorithm,
            "library": f"{self.info.library} {self.info.library_version}".strip(),
            "chosen": self.chosen,
            "reason": self.reason,
            "weight": self.info.tuned.weight,
            "direct_sec": self.direct_sec if known else None,
            "kernels_sec": {self.info.tuned.name: self.tuned_sec, **self.fixed_sec},
            "sum_sec": self.sum_sec,
            "expected_gain_sec": self.expected_gain_sec if known else None,
            "network_gain_sec": gain,
            "border_cost_sec": self.expected_gain_sec - gain if known and gain is not None else None,
        }


def _used_sec(kernel: CheckedKernel) -> float:
    """Return seconds per call: the record's if that is more, since large weights are timed outside of the caches there.

    Without a record that passed, those of the untuned form; infinite if that was not timed.
    """
    if kernel.hit is None:
        samples = kernel.evidence.get("untuned_sec")
        return float(median(samples)) if samples else float("inf")
    known_sec = (kernel.record.cost_sec or 0.0) if kernel.record is not None else 0.0
    return max(known_sec, float(median(kernel.evidence["tuned_sec"])))


def find_candidates(
    alternatives: Sequence[AlternativeInfo],
    direct: Sequence[CheckedKernel],
    find_record: Callable[[KernelInfo], TuningRecord | None],
    validator: KernelValidator,
    on_step: Callable[[], None],
    *,
    untuned_sec: float,
) -> tuple[list[Candidate], list[CheckedKernel]]:
    """Check and time the kernels of the alternatives.

    Those with a record come first, whatever time they take. An alternative without one that passes uses the default schedule of its
    kernel, which may still beat the best direct kernel: Winograd's algorithm needs a half to a quarter of the multiplications.

    Args:
        alternatives: Those that the network offers.
        direct: The direct kernels, as they were checked.
        find_record: Returns the record of an alternative's kernel.
        validator: Checks and times kernels.
        on_step: Called after each.
        untuned_sec: Time for the alternatives without a tuned kernel, those of the largest kernels first.

    Returns:
        The alternatives that were timed, and the direct kernels, more of them timed; both in the given order. The other kernels of
        one whose tuned kernel alone takes longer than the direct one are not timed.
    """
    timings = _Timings(alternatives, direct, validator, on_step)
    timings.check_records(find_record)
    timings.time_without_records(until=time.monotonic() + untuned_sec)
    return timings.candidates(), [timings.direct[kernel.task.workload_key] for kernel in direct]


class _Timings:
    """The kernels of the alternatives, and the direct ones, as they are checked and timed.

    Attributes:
        direct: The direct kernels by their workload.
    """

    def __init__(
        self,
        alternatives: Sequence[AlternativeInfo],
        direct: Sequence[CheckedKernel],
        validator: KernelValidator,
        on_step: Callable[[], None],
    ) -> None:
        self._alternatives = alternatives
        self._validator = validator
        self._on_step = on_step
        self.direct = {kernel.task.workload_key: kernel for kernel in direct}
        self._tuned: dict[str, CheckedKernel] = {}
        self._fixed_sec: dict[int, dict[str, float] | None] = {}
        """By number of the alternative: seconds of its other kernels by name; None if one does not build or run."""

    def check_records(self, find_record: Callable[[KernelInfo], TuningRecord | None]) -> None:
        """Check the tuned kernel of each alternative, and time the other kernels of those where it passes."""
        for number, info in enumerate(self._alternatives):
            key = info.tuned.workload_key
            if key not in self._tuned:
                self._tuned[key] = self._checked(info.tuned, find_record(info.tuned))
                self._on_step()
            if self._tuned[key].hit is not None:
                self._fixed_sec[number] = self._time_fixed(info)

    def time_without_records(self, *, until: float) -> None:
        """Time the kernels of the other alternatives, the largest first, as long as there is time."""
        for number in largest_first(self._alternatives):
            if number in self._fixed_sec or time.monotonic() >= until:
                continue
            info = self._alternatives[number]
            kernel = self._time_untuned(self._tuned, info.tuned.workload_key, until)
            if self.direct[info.workload_key].hit is None:
                self._time_untuned(self.direct, info.workload_key, until)
            if kernel.evidence.get("untuned_sec"):
                is_faster = _used_sec(kernel) < _used_sec(self.direct[info.workload_key])
                self._fixed_sec[number] = self._time_fixed(info) if is_faster else {}

    def candidates(self) -> list[Candidate]:
        """Return the alternatives that were timed."""
        return [
            Candidate(
                info=info,
                direct=self.direct[info.workload_key],
                tuned=self._tuned[info.tuned.workload_key],
                fixed_sec=fixed_sec,
            )
            for number, info in enumerate(self._alternatives)
            if (fixed_sec := self._fixed_sec.get(number)) is not None
        ]

    def _checked(self, task: KernelInfo, record: TuningRecord | None) -> CheckedKernel:
        if record is None:
            return CheckedKernel(task=task, record=None, miss=missed(task, MissReason.NO_RECORD))
        return self._validator.check(task, record)

    def _time_untuned(self, kernels: dict[str, CheckedKernel], key: str, until: float) -> CheckedKernel:
        """Time a kernel's untuned form, unless it was, and keep it with its times."""
        if not kernels[key].evidence.get("untuned_sec"):
            self._on_step()
            timeout_sec = max(1.0, until - time.monotonic())
            kernels[key] = self._validator.time_untuned(kernels[key], timeout_sec=timeout_sec)
        return kernels[key]

    def _time_fixed(self, info: AlternativeInfo) -> dict[str, float] | None:
        fixed_sec = {
            fixed.name: self._validator.time_fixed(
                fixed, _name_of_fixed(info, number), runs=_FIXED_KERNEL_RUNS
            )
            for number, fixed in enumerate(info.fixed)
        }
        self._on_step()
        known = {name: sec for name, sec in fixed_sec.items() if sec is not None}
        return known if len(known) == len(fixed_sec) else None


def _name_of_fixed(info: AlternativeInfo, number: int) -> str:
    """Return what names one of an alternative's fixed kernels in any network."""
    return f"{info.workload_key}/{info.algorithm}/{number}"


def kernels_to_time(
    info: AlternativeInfo, direct: KernelInfo, findings: ScopedFindings, *, seed: int, limits: CompileLimits
) -> list[KernelInfo]:
    """Return the kernels that `find_candidates` may time for an alternative without a record: those that no earlier compile has timed."""
    untuned = [
        kernel
        for kernel in (direct, info.tuned)
        if findings.peek("untuned", kernel_facts(kernel, None, seed=seed, limits=limits)) is None
    ]
    return untuned + [
        fixed
        for number, fixed in enumerate(info.fixed)
        if findings.peek("fixed", fixed_facts(fixed, _name_of_fixed(info, number), _FIXED_KERNEL_RUNS))
        is None
    ]


def largest_first(alternatives: Sequence[AlternativeInfo]) -> Iterator[int]:
    """Yield the numbers of the alternatives of kernels with a share of the operations that matters, the largest share first."""
    flops = [info.tuned.weight * info.flops for info in alternatives]
    total = sum({info.workload_key: share for info, share in zip(alternatives, flops, strict=True)}.values())
    for number in sorted(range(len(alternatives)), key=lambda number: -flops[number]):
        if flops[number] >= _LEAST_FLOPS_SHARE * total:
            yield number


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedAlternatives:
    """The result of a selection.

    Attributes:
        library: The compiled network with the chosen alternatives; the direct network if none is chosen.
        candidates: All alternatives that were timed, each chosen or with the reason against it.
        networks_sec: Median seconds per inference of the two networks timed last: ``"direct"`` and ``"chosen"``. Empty if no
            alternative is chosen, or all verdicts are of earlier compiles.
    """

    library: Path
    candidates: tuple[Candidate, ...] = ()
    networks_sec: Mapping[str, float] = field(default_factory=dict)

    @property
    def chosen(self) -> list[Candidate]:
        """The alternatives that the network uses."""
        return [candidate for candidate in self.candidates if candidate.chosen]

    @property
    def records(self) -> dict[str, TuningRecord]:
        """The records of the chosen alternatives' tuned kernels, by name."""
        return records_of(self.chosen)

    @property
    def algorithms(self) -> dict[str, str]:
        """The chosen algorithms by the key of the workload that they replace."""
        return algorithms_of(self.chosen)

    @property
    def kernel_libraries(self) -> dict[str, str]:
        """The kernel libraries that the network calls, with the versions that it was timed with."""
        infos = (candidate.info for candidate in self.chosen)
        return {info.library: info.library_version for info in infos if info.library}

    def replaced(self, direct: Sequence[CheckedKernel]) -> list[CheckedKernel]:
        """Return the direct kernels that the network does not use."""
        return [kernel for kernel in direct if kernel.task.workload_key in self.algorithms]

    def kernels(self, direct: Sequence[CheckedKernel]) -> list[CheckedKernel]:
        """Return the kernels of ours that the network uses, given the direct ones."""
        kernels = [kernel for kernel in direct if kernel.task.workload_key not in self.algorithms]
        weights: dict[str, int] = {}
        ours = [candidate for candidate in self.chosen if not candidate.info.library]
        for candidate in ours:
            key = candidate.info.tuned.workload_key
            weights[key] = weights.get(key, 0) + candidate.info.tuned.weight
        tuned = {candidate.info.tuned.workload_key: candidate.tuned for candidate in ours}
        return kernels + [tuned[key].with_weight(weight) for key, weight in weights.items()]

    def withdrawn(self, reason: str) -> SelectedAlternatives:
        """Return the selection with no alternative chosen, for this reason."""
        return replace(
            self,
            candidates=tuple(
                replace(candidate, chosen=False, reason=reason) if candidate.chosen else candidate
                for candidate in self.candidates
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report's section."""
        return {
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "networks_sec": dict(self.networks_sec),
        }


def records_of(candidates: Sequence[Candidate]) -> dict[str, TuningRecord]:
    """Return the records of the candidates' tuned kernels, by name."""
    return {
        name: candidate.tuned.record
        for candidate in candidates
        for name in candidate.info.tuned.names
        if candidate.tuned.hit is not None and candidate.tuned.record is not None
    }


def algorithms_of(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Return the algorithms by the key of the workload that they replace."""
    return {candidate.info.workload_key: candidate.info.algorithm for candidate in candidates}
