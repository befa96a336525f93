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
    direct_by_key = {kernel.task.workload_key: kernel for kernel in direct}
    checked: dict[str, CheckedKernel] = {}

    def time_fixed(info: AlternativeInfo) -> dict[str, float] | None:
        fixed_sec = {
            fixed.name: validator.time_fixed(fixed, _name_of_fixed(info, number), runs=_FIXED_KERNEL_RUNS)
            for number, fixed in enumerate(info.fixed)
        }
        on_step()
        known = {name: sec for name, sec in fixed_sec.items() if sec is not None}
        return known if len(known) == len(fixed_sec) else None

    def untuned(kernel: CheckedKernel) -> CheckedKernel:
        if kernel.evidence.get("untuned_sec"):
            return kernel
        on_step()
        return validator.time_untuned(kernel, timeout_sec=max(1.0, until - time.monotonic()))

    fixed_sec: dict[int, dict[str, float] | None] = {}
    for number, info in enumerate(alternatives):
        key = info.tuned.workload_key
        record = find_record(info.tuned)
        if key not in checked:
            checked[key] = (
                CheckedKernel(task=info.tuned, record=None, miss=missed(info.tuned, MissReason.NO_RECORD))
                if record is None
                else validator.check(info.tuned, record)
            )
            on_step()
        if checked[key].hit is not None:
            fixed_sec[number] = time_fixed(info)
    until = time.monotonic() + untuned_sec
    for number in largest_first(alternatives):
        if number in fixed_sec or time.monotonic() >= until:
            continue
        info = alternatives[number]
        kernel = checked[info.tuned.workload_key] = untuned(checked[info.tuned.workload_key])
        if direct_by_key[info.workload_key].hit is None:
            direct_by_key[info.workload_key] = untuned(direct_by_key[info.workload_key])
        if kernel.evidence.get("untuned_sec"):
            is_faster = _used_sec(kernel) < _used_sec(direct_by_key[info.workload_key])
            fixed_sec[number] = time_fixed(info) if is_faster else {}
    candidates = [
        Candidate(
            info=info,
            direct=direct_by_key[info.workload_key],
            tuned=checked[info.tuned.workload_key],
            fixed_sec=known,
        )
        for number, info in enumerate(alternatives)
        if (known := fixed_sec.get(number)) is not None
    ]
    return candidates, [direct_by_key[kernel.task.workload_key] for kernel in direct]


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
        library: The network with the chosen alternatives; the direct network if none is chosen.
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
    def libraries(self) -> dict[str, str]:
        """The libraries that the network calls, with the versions that it was timed with."""
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
