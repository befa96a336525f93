"""Which algorithm each kernel of a network takes: decided by timing the network, not its kernels.

What a kernel wins by itself, the kernels around it may lose: their data comes from other places then. So the network is built
with the alternatives that win by themselves, and timed with and without each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tunefarm_tuning.compiler.kernel_check import CheckedKernel, KernelCheck
from tunefarm_tuning.compiler.model_check import compare_model, time_models
from tunefarm_tuning.compiler.session import AlternativeInfo, CompileLimits, CompileSession, KernelInfo
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.onnx_runtime import InputSet

_BUDGET_SEC = 60.0
_BORDERS_SEC = 30.0
"""For so long the network is timed without those that are beyond doubt, too: for what they cost at their borders."""
_CLEARLY = 0.99
"""An alternative is left out where the network without it takes less than this share of the time."""
_FIXED_RUNS = 3
_SURE = 0.7
"""An alternative whose kernels take less than this share of the direct one's is beyond doubt, as long as ..."""
_AS_EXPECTED = 0.8
"""... the network gains at least this share of what all kernels together should win."""


@dataclass(slots=True, kw_only=True)
class Candidate:
    """An alternative with a tuned kernel, beside the kernel that it would take the place of.

    Attributes:
        direct: The kernel as it stands.
        tuned: The alternative's tuned kernel.
        fixed_sec: A call of each of its other kernels, by name.
        chosen: Whether it goes in.
        network_gain_sec: What the network gains by it, timed with and without; None where that was not done.
        reason: Why it does not go in.
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
        """A call of the kernel as it stands, tuned if there is a record that holds."""
        if self.direct.hit:
            return _tuned_sec(self.direct)
        samples = self.direct.evidence.get("untuned_sec")
        return float(median(samples)) if samples else float("inf")

    @property
    def tuned_sec(self) -> float:
        """A call of the tuned kernel."""
        return _tuned_sec(self.tuned)

    @property
    def sum_sec(self) -> float:
        """A call of all its kernels, one after the other, each by itself."""
        return self.tuned_sec + sum(self.fixed_sec.values())

    @property
    def expected_gain_sec(self) -> float:
        """What the network would gain if it took what its kernels take by themselves."""
        return self.info.tuned.weight * (self.direct_sec - self.sum_sec)

    def to_json(self) -> dict[str, Any]:
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
    """Return a call's time: by its record if that is more, where large weights were timed out of the caches."""
    known_sec = (kernel.record.cost_sec or 0.0) if kernel.record is not None else 0.0
    return max(known_sec, float(median(kernel.evidence["tuned_sec"])))


@dataclass(slots=True)
class AlternativeChoice:
    """Chooses the alternatives of one network.

    Attributes:
        candidates: The alternatives that have a record, best first within a kernel.
        networks_sec: Median seconds of the networks that were compared last: ``"direct"`` and ``"chosen"``.
    """

    compiler: CompileSession
    runner: DeviceRun
    folder: Path
    limits: CompileLimits
    threads: int
    on_step: Callable[[], None]
    candidates: list[Candidate] = field(default_factory=list)
    networks_sec: dict[str, float] = field(default_factory=dict)
    _built: int = 0

    def check(
        self,
        alternatives: Sequence[AlternativeInfo],
        kernels: Sequence[CheckedKernel],
        find: Callable[[KernelInfo], TuningRecord | None],
        check: KernelCheck,
    ) -> None:
        """Check and time the kernels of the alternatives that have a record."""
        direct = {kernel.task.workload_key: kernel for kernel in kernels}
        checked: dict[str, CheckedKernel] = {}
        for info in alternatives:
            key = info.tuned.workload_key
            record = find(info.tuned)
            if record is None:
                continue
            if key not in checked:
                checked[key] = check.check(info.tuned, record)
                self.on_step()
            if checked[key].hit is None:
                continue
            fixed_sec = {kernel.name: check.time_fixed(kernel, runs=_FIXED_RUNS) for kernel in info.fixed}
            self.on_step()
            known = {name: sec for name, sec in fixed_sec.items() if sec is not None}
            if len(known) == len(fixed_sec):
                self.candidates.append(
                    Candidate(
                        info=info, direct=direct[info.workload_key], tuned=checked[key], fixed_sec=known
                    )
                )

    def choose(
        self,
        direct: Path,
        records: Mapping[str, TuningRecord],
        sets: Sequence[InputSet],
        names: Sequence[str],
    ) -> Path:
        """Return the library of the network with the alternatives that pay; `direct` if none does.

        Args:
            direct: The network as it stands.
            records: Of its kernels, by name.
            sets: What it is checked with; timed on the first.
            names: Of its outputs.
        """
        self._pick(self.candidates)
        first = best = self._build_right(records, sets, names)
        if best is None:
            return direct
        times = self._time({"direct": direct, "chosen": best}, sets[0])
        doubtful = self._doubtful(times)
        sure = [one for one in self.chosen if one not in doubtful]
        sure.sort(key=lambda one: -one.expected_gain_sec)
        for limit_sec, candidates in ((_BUDGET_SEC, doubtful), (_BORDERS_SEC, sure)):
            until = time.monotonic() + limit_sec
            for candidate in candidates:
                # Without the only one it is the direct network, with which it is compared in the end.
                if len(self.chosen) > 1 and time.monotonic() <= until:
                    best = self._try_without(candidate, best, direct, records, sets)
        if best == direct:
            return direct
        if best != first:
            times = self._time({"direct": direct, "chosen": best}, sets[0])
        if times is None or times["chosen"] > times["direct"]:
            self.leave_out(self.chosen, "the network with the alternatives is no faster than without")
            return direct
        self.networks_sec = times
        if len(self.chosen) == 1:
            self.chosen[0].network_gain_sec = times["direct"] - times["chosen"]
        return best

    @property
    def chosen(self) -> list[Candidate]:
        return [one for one in self.candidates if one.chosen]

    @property
    def choices(self) -> dict[str, str]:
        """Algorithm by workload key."""
        return {one.info.workload_key: one.info.algorithm for one in self.chosen}

    def replaced(self, direct: Sequence[CheckedKernel]) -> list[CheckedKernel]:
        """Return the kernels of the direct network that are not in the chosen one."""
        return [kernel for kernel in direct if kernel.task.workload_key in self.choices]

    def kernels(self, direct: Sequence[CheckedKernel]) -> list[CheckedKernel]:
        """Return the kernels of the chosen network, given those of the direct one."""
        kept = [kernel for kernel in direct if kernel.task.workload_key not in self.choices]
        weights: dict[str, int] = {}
        for one in self.chosen:
            key = one.info.tuned.workload_key
            weights[key] = weights.get(key, 0) + one.info.tuned.weight
        tuned = {one.info.tuned.workload_key: one.tuned for one in self.chosen}
        return kept + [tuned[key].with_weight(weight) for key, weight in weights.items()]

    def to_json(self) -> dict[str, Any]:
        return {
            "candidates": [one.to_json() for one in self.candidates],
            "networks_sec": dict(self.networks_sec),
        }

    def _doubtful(self, times: Mapping[str, float] | None) -> list[Candidate]:
        """Return the chosen that the network may be better without, the least promising first.

        Args:
            times: Of the direct network, and of that with all of them; None where they could not be timed.
        """
        expected_sec = sum(one.expected_gain_sec for one in self.chosen)
        as_expected = times is not None and times["direct"] - times["chosen"] > _AS_EXPECTED * expected_sec
        doubtful = [one for one in self.chosen if not (as_expected and one.sum_sec < _SURE * one.direct_sec)]
        return sorted(doubtful, key=lambda one: one.expected_gain_sec)

    @staticmethod
    def _pick(candidates: Sequence[Candidate]) -> None:
        """Choose, for every kernel, the one of these that wins most by itself."""
        best: dict[str, Candidate] = {}
        for one in candidates:
            held = best.get(one.info.workload_key)
            if one.expected_gain_sec <= 0:
                one.reason = "its kernels take longer than the direct one"
            elif held is None or one.sum_sec < held.sum_sec:
                if held is not None:
                    held.reason = f"its kernels take longer than those of {one.info.algorithm}"
                best[one.info.workload_key] = one
            else:
                one.reason = f"its kernels take longer than those of {held.info.algorithm}"
        for one in best.values():
            one.chosen, one.reason = True, ""

    def _build_right(
        self, records: Mapping[str, TuningRecord], sets: Sequence[InputSet], names: Sequence[str]
    ) -> Path | None:
        """Build the network with all that is chosen; leave out what is too inexact, the coarsest tiles first."""
        while self.chosen:
            path = self._build(records)
            if path is None:
                return None
            try:
                comparison = compare_model(self.runner, path, names, sets, self.limits)
            except RunFailed as error:
                self.leave_out(
                    self.chosen, f"the network with the alternatives does not run: {error.message}"
                )
                return None
            if comparison.ok:
                return path
            coarsest = max(one.info.algorithm for one in self.chosen)
            inexact = [one for one in self.candidates if one.info.algorithm == coarsest]
            self.leave_out(inexact, f"the network with it is not exact enough: {comparison.message}")
            self._pick([one for one in self.candidates if one.info.algorithm < coarsest])
        return None

    def _try_without(
        self,
        candidate: Candidate,
        best: Path,
        direct: Path,
        records: Mapping[str, TuningRecord],
        sets: Sequence[InputSet],
    ) -> Path:
        """Time the network without one alternative; return the one that is to be gone on with."""
        held = self.chosen
        candidate.chosen = False
        without = self._build(records) if self.chosen else direct
        times = None if without is None else self._time({"with": best, "without": without}, sets[0])
        self.on_step()
        if without is None or times is None:
            for one in held:
                one.chosen, one.reason = True, ""
            return best
        candidate.network_gain_sec = times["without"] - times["with"]
        if times["without"] < _CLEARLY * times["with"]:
            candidate.reason = "the network is faster without it"
            if best != direct:
                best.unlink(missing_ok=True)
            return without
        candidate.chosen = True
        if without != direct:
            without.unlink(missing_ok=True)
        return best

    def _build(self, records: Mapping[str, TuningRecord]) -> Path | None:
        self._built += 1
        path = self.folder / f"model-chosen-{self._built}.so"
        of_chosen = {
            name: one.tuned.record
            for one in self.chosen
            for name in one.info.tuned.names
            if one.tuned.record is not None
        }
        try:
            self.compiler.build_model(path, {**records, **of_chosen}, self.choices)
        except ChildClosed:
            raise
        except (ChildFailed, InvalidInputError, InvalidModelError) as error:
            self.leave_out(self.chosen, f"the network with the alternatives does not build: {error.message}")
            return None
        return path

    def _time(self, libraries: Mapping[str, Path], inputs: InputSet) -> dict[str, float] | None:
        try:
            latency = time_models(
                self.runner,
                libraries,
                None,
                inputs.inputs,
                threads=self.threads,
                limits=self.limits,
                on_round=lambda _: self.on_step(),
            )
        except RunFailed:
            return None
        return {name: one.median_sec for name, one in latency.items()}

    @staticmethod
    def leave_out(candidates: Sequence[Candidate], reason: str) -> None:
        """Take alternatives back."""
        for one in candidates:
            one.chosen, one.reason = False, reason
