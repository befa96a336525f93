"""Other algorithms for the kernels of a network: those that have a record, and those that the network uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_tuning.compiler.kernel_validation import CheckedKernel, KernelValidator
from tunefarm_tuning.compiler.session import AlternativeInfo, KernelInfo
from tunefarm_tuning.records.record import TuningRecord

_FIXED_KERNEL_RUNS = 3


@dataclass(slots=True, kw_only=True)
class Candidate:
    """An alternative with a tuned kernel, and the direct kernel that it would replace.

    Attributes:
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
        if self.direct.hit:
            return _tuned_sec(self.direct)
        samples = self.direct.evidence.get("untuned_sec")
        return float(median(samples)) if samples else float("inf")

    @property
    def tuned_sec(self) -> float:
        """Seconds per call of the alternative's tuned kernel."""
        return _tuned_sec(self.tuned)

    @property
    def sum_sec(self) -> float:
        """Seconds per call of all its kernels, each timed by itself."""
        return self.tuned_sec + sum(self.fixed_sec.values())

    def facts(self) -> dict[str, Any]:
        """Return what a verdict on it depends on: the kernels that it replaces and has, and those beside it in the graph."""
        records = (self.tuned.record, self.direct.record if self.direct.hit else None)
        return {
            "workload": self.info.workload_key,
            "algorithm": self.info.algorithm,
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


def _tuned_sec(kernel: CheckedKernel) -> float:
    """Return seconds per call: the record's if that is more, since large weights are timed outside of the caches there."""
    known_sec = (kernel.record.cost_sec or 0.0) if kernel.record is not None else 0.0
    return max(known_sec, float(median(kernel.evidence["tuned_sec"])))


def find_candidates(
    alternatives: Sequence[AlternativeInfo],
    direct: Sequence[CheckedKernel],
    find_record: Callable[[KernelInfo], TuningRecord | None],
    validator: KernelValidator,
    on_step: Callable[[], None],
) -> list[Candidate]:
    """Check and time the kernels of the alternatives that have a record.

    Returns:
        The alternatives whose kernels all work, in the given order.
    """
    direct_by_key = {kernel.task.workload_key: kernel for kernel in direct}
    checked: dict[str, CheckedKernel] = {}
    candidates: list[Candidate] = []
    for info in alternatives:
        key = info.tuned.workload_key
        record = find_record(info.tuned)
        if record is None:
            continue
        if key not in checked:
            checked[key] = validator.check(info.tuned, record)
            on_step()
        if checked[key].hit is None:
            continue
        fixed_sec = {
            kernel.name: validator.time_fixed(
                kernel, f"{info.workload_key}/{info.algorithm}/{number}", runs=_FIXED_KERNEL_RUNS
            )
            for number, kernel in enumerate(info.fixed)
        }
        on_step()
        known = {name: sec for name, sec in fixed_sec.items() if sec is not None}
        if len(known) == len(fixed_sec):
            candidates.append(
                Candidate(
                    info=info, direct=direct_by_key[info.workload_key], tuned=checked[key], fixed_sec=known
                )
            )
    return candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedAlternatives:
    """The result of a selection.

    Attributes:
        library: The network with the chosen alternatives; the direct network if none is chosen.
        candidates: All alternatives that have a record, each chosen or with the reason against it.
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

    def replaced(self, direct: Sequence[CheckedKernel]) -> list[CheckedKernel]:
        """Return the direct kernels that the network does not use."""
        return [kernel for kernel in direct if kernel.task.workload_key in self.algorithms]

    def kernels(self, direct: Sequence[CheckedKernel]) -> list[CheckedKernel]:
        """Return the kernels that the network uses, given the direct ones."""
        kernels = [kernel for kernel in direct if kernel.task.workload_key not in self.algorithms]
        weights: dict[str, int] = {}
        for candidate in self.chosen:
            key = candidate.info.tuned.workload_key
            weights[key] = weights.get(key, 0) + candidate.info.tuned.weight
        tuned = {candidate.info.tuned.workload_key: candidate.tuned for candidate in self.chosen}
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
        if candidate.tuned.record is not None
    }


def algorithms_of(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Return the algorithms by the key of the workload that they replace."""
    return {candidate.info.workload_key: candidate.info.algorithm for candidate in candidates}
