"""Selects which algorithm each kernel of a network uses, by timing the network instead of its kernels.

A kernel that is faster alone may slow down its neighbours, whose data are then elsewhere. So the network is
built with all alternatives that are faster by themselves, and an ablation removes one at a time: an alternative stays only if
the network without it is no faster. Where other work may explain that difference, the alternative stays. All of them go if
the network with them takes longer than the direct one, whatever other work there was.

Verdicts are findings for later compiles. One that a busy device or a short time leaves unsettled holds only for compiles that have no
time for ablations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tunefarm_tuning.compiler.alternatives import Candidate, SelectedAlternatives, algorithms_of, records_of
from tunefarm_tuning.compiler.model_comparison import compare_model
from tunefarm_tuning.compiler.model_timing import SideBySide, rounds_for, time_models
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession, EntryInfo
from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError
from tunefarm_tuning.core.latency import is_quiet
from tunefarm_tuning.measure.device_run import DeviceRun, RunFailed
from tunefarm_tuning.process import ChildClosed, ChildFailed
from tunefarm_tuning.records.findings import Findings, ScopedFindings
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.reference.onnx_runtime import InputSet

_CLEAR_WINNERS_SHARE = 0.5
"""Share of the time for ablations (`CompileLimits.ablation_sec`) for alternatives that clearly win, whose gain is only reported."""
_UNTUNED_ABLATION_SEC = 5.0
"""The time for ablations where no kernel of the network is tuned."""
_UNTUNED_RATIO = 0.9
"""An alternative with an untuned kernel is tried if its kernels take less than this share of the direct kernel's time."""
_FASTER_RATIO = 0.99
"""An alternative is removed if the network without it takes less than this share of the time."""
_CLEAR_WIN_RATIO = 0.7
"""An alternative clearly wins if its kernels take less than this share of the direct kernel's time ..."""
_EXPECTED_GAIN_SHARE = 0.8
"""... and the network gains more than this share of what the kernels predict."""


@dataclass(frozen=True, slots=True)
class _Times:
    """Median seconds of networks by name.

    Attributes:
        slowdown: How many times as long other work may have made any of them; 1 if the device was quiet.
    """

    sec: Mapping[str, float]
    slowdown: float

    def gain_sec(self, without: str, with_: str) -> float:
        """Return how much longer one network took than another."""
        return self.sec[without] - self.sec[with_]

    def is_faster(self, name: str, other: str, ratio: float) -> bool:
        """Return whether a network surely takes less than `ratio` times as long as another."""
        return self.sec[name] * self.slowdown < ratio * self.sec[other]


@dataclass(slots=True, kw_only=True)
class AlternativeSelector:
    """Selects the alternatives of one network.

    Attributes:
        folder: Where libraries are written.
        candidates: The alternatives to select from; their verdicts are filled in.
        build_direct: Builds the direct network, without alternatives, and returns its library. It is called once at most.
        findings: Verdicts of earlier compiles: alternatives with one are not timed again.
        records: The records of its kernels, by name.
        sets: Inputs and expected outputs that networks are checked with; each of the library's functions is timed on its first.
        entries: The library's functions; none stands for ``main`` alone.
        spare_sec: Returns how much of a time budget ablations may take, at this moment.
    """

    compiler: CompileSession
    runner: DeviceRun
    folder: Path
    limits: CompileLimits
    threads: int
    on_step: Callable[[], None]
    candidates: list[Candidate]
    build_direct: Callable[[], Path]
    records: Mapping[str, TuningRecord]
    sets: Sequence[InputSet]
    output_names: Sequence[str]
    entries: Sequence[EntryInfo] = ()
    findings: ScopedFindings = field(default_factory=lambda: Findings().within())
    spare_sec: Callable[[float], float] = field(default=lambda most_sec: most_sec)
    _built: int = 0
    _direct: Path | None = None
    _judged: set[int] = field(default_factory=set)
    _ablated: set[int] = field(default_factory=set)

    @property
    def direct(self) -> Path:
        """The library of the direct network."""
        if self._direct is None:
            self._direct = self.build_direct()
        return self._direct

    def select(self) -> SelectedAlternatives:
        """Build the network with the alternatives that make it faster."""
        library, networks_sec = self._select()
        return SelectedAlternatives(
            library=library,
            candidates=tuple(replace(candidate) for candidate in self.candidates),
            networks_sec=networks_sec,
        )

    def _select(self) -> tuple[Path, Mapping[str, float]]:
        """Return the library of the network, and the times of the direct one and of it, if it has alternatives that were timed."""
        self._choose(self.candidates)
        with_all = self._build_exact()
        if with_all is None:
            return self.direct, {}
        if all(self._is_judged(candidate) for candidate in self._chosen):
            return with_all, {}
        tried = self._chosen
        if self._is_untuned and not self._is_thorough:
            self._note_verdicts(tried, settled=False)
            return with_all, {}  # the phase `measure` times it beside the direct network
        times = self._time({"direct": self.direct, "chosen": with_all}, self._chosen)
        best, in_time = self._ablate_in_time(with_all, times)
        if best == self.direct:
            return self.direct, {}
        if best != with_all:
            times = self._time({"direct": self.direct, "chosen": best}, self._chosen)
        if times is None or times.sec["direct"] < times.sec["chosen"]:
            _withdraw(self._chosen, "the network with the alternatives is not faster than without")
            return self.direct, {}
        if len(self._chosen) == 1:
            self._chosen[0].network_gain_sec = times.gain_sec("direct", "chosen")
        self._note_verdicts(tried, settled=times.slowdown == 1.0 and in_time)
        return best, times.sec

    def _ablate_in_time(self, best: Path, times: _Times | None) -> tuple[Path, bool]:
        """Time the network without each alternative that has no verdict, those in doubt first, as long as there is time.

        Returns:
            The fastest network, and whether the ablations had all of their time.
        """
        unclear = [candidate for candidate in self._unclear(times) if not self._is_judged(candidate)]
        clear = [
            candidate
            for candidate in self._chosen
            if candidate not in unclear and not self._is_judged(candidate)
        ]
        clear.sort(key=lambda candidate: -candidate.expected_gain_sec)
        in_time = self._is_thorough
        budgets_sec = (self.limits.ablation_sec, _CLEAR_WINNERS_SHARE * self.limits.ablation_sec)
        if self._is_untuned:
            budgets_sec, in_time = (min(_UNTUNED_ABLATION_SEC, budgets_sec[0]), 0.0), False
        for budget_sec, candidates in zip(budgets_sec, (unclear, clear), strict=True):
            spare_sec = self.spare_sec(budget_sec)
            in_time = in_time and spare_sec >= budget_sec
            until = time.monotonic() + spare_sec
            for candidate in candidates:
                # Without its only alternative it is the direct network, with which it is compared at the end.
                if len(self._chosen) > 1 and time.monotonic() < until:
                    best = self._ablate(candidate, best)
        return best, in_time

    @property
    def _is_untuned(self) -> bool:
        return not self.records and not records_of(self.candidates)

    @property
    def _is_thorough(self) -> bool:
        """Whether there is time for ablations."""
        return self.spare_sec(self.limits.ablation_sec) > 0

    def _choose(self, candidates: Sequence[Candidate]) -> None:
        """Choose the fastest candidates, and apply the verdicts of earlier compiles to them."""
        self._choose_fastest(candidates)
        for candidate in self._chosen:
            verdict = self.findings.find(
                "alternative",
                candidate.facts(),
                lambda verdict: bool(verdict.get("settled", True)) or not self._is_thorough,
            )
            if verdict is not None:
                self._judged.add(id(candidate))
                candidate.chosen, candidate.reason = bool(verdict["chosen"]), str(verdict["reason"])
                candidate.network_gain_sec = verdict["network_gain_sec"]

    def _is_judged(self, candidate: Candidate) -> bool:
        return id(candidate) in self._judged

    def _note_verdicts(self, candidates: Sequence[Candidate], *, settled: bool) -> None:
        """Remember the verdicts, settled ones for all later compiles."""
        for candidate in candidates:
            if self._is_judged(candidate):
                continue
            verdict = {
                "chosen": candidate.chosen,
                "reason": candidate.reason,
                "network_gain_sec": candidate.network_gain_sec,
                "settled": settled or id(candidate) in self._ablated,
            }
            self.findings.note("alternative", candidate.facts(), verdict)

    @property
    def _chosen(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.chosen]

    def _unclear(self, times: _Times | None) -> list[Candidate]:
        """Return the chosen alternatives that do not clearly win, the least promising first.

        `times` are those of the direct network and of the network with all of them; None if they could not be timed.
        """
        expected_sec = sum(candidate.expected_gain_sec for candidate in self._chosen)
        as_expected = (
            times is not None and times.gain_sec("direct", "chosen") > _EXPECTED_GAIN_SHARE * expected_sec
        )
        unclear = [
            candidate
            for candidate in self._chosen
            if not (as_expected and candidate.sum_sec < _CLEAR_WIN_RATIO * candidate.direct_sec)
        ]
        return sorted(unclear, key=lambda candidate: candidate.expected_gain_sec)

    @staticmethod
    def _choose_fastest(candidates: Sequence[Candidate]) -> None:
        """Choose, for every direct kernel, the candidate that is fastest by itself, if it is faster than that kernel."""
        best: dict[str, Candidate] = {}
        for candidate in candidates:
            fastest = best.get(candidate.info.workload_key)
            if candidate.expected_gain_sec <= 0:
                candidate.reason = "its kernels take longer than the direct kernel"
            elif (
                candidate.tuned.hit is None
                and not candidate.info.library
                and candidate.sum_sec > _UNTUNED_RATIO * candidate.direct_sec
            ):
                candidate.reason = (
                    "its kernels, which are not tuned, are hardly faster than the direct kernel"
                )
            elif fastest is None or candidate.sum_sec < fastest.sum_sec:
                if fastest is not None:
                    fastest.reason = f"its kernels take longer than those of {candidate.info.algorithm}"
                best[candidate.info.workload_key] = candidate
            else:
                candidate.reason = f"its kernels take longer than those of {fastest.info.algorithm}"
        for candidate in best.values():
            candidate.chosen, candidate.reason = True, ""

    def _build_exact(self) -> Path | None:
        """Build the network with all chosen alternatives; drop the coarsest algorithm until the outputs are exact enough."""
        while self._chosen:
            path = self._build()
            if path is None:
                return None
            try:
                comparison = compare_model(self.runner, path, self.output_names, self.sets, self.limits)
            except RunFailed as error:
                _withdraw(self._chosen, f"the network with the alternatives does not run: {error.message}")
                return None
            if comparison.ok:
                return path
            coarsest = max(candidate.info.algorithm for candidate in self._chosen)
            inexact = [candidate for candidate in self.candidates if candidate.info.algorithm == coarsest]
            _withdraw(inexact, f"the network with it is not accurate enough: {comparison.message}")
            self._choose([candidate for candidate in self.candidates if candidate.info.algorithm < coarsest])
        return None

    def _ablate(self, candidate: Candidate, best: Path) -> Path:
        """Time the network without one alternative; return the faster network, which keeps or drops it."""
        chosen = self._chosen
        candidate.chosen = False
        without = self._build() if self._chosen else self.direct
        times = (
            None
            if without is None
            else self._time({"with": best, "without": without}, [candidate], decide=_FASTER_RATIO)
        )
        self.on_step()
        if without is None or times is None:
            for kept in chosen:
                kept.chosen, kept.reason = True, ""
            return best
        if times.slowdown == 1.0:
            self._ablated.add(id(candidate))
        candidate.network_gain_sec = times.gain_sec("without", "with")
        if times.is_faster("without", "with", _FASTER_RATIO):
            candidate.reason = "the network is faster without it"
            if best != self.direct:
                best.unlink(missing_ok=True)
            return without
        candidate.chosen = True
        if without != self.direct:
            without.unlink(missing_ok=True)
        return best

    def _build(self) -> Path | None:
        self._built += 1
        path = self.folder / f"model-chosen-{self._built}.so"
        records = {**self.records, **records_of(self._chosen)}
        try:
            self.compiler.build_model(path, records, algorithms_of(self._chosen))
        except ChildClosed:
            raise
        except (ChildFailed, InvalidInputError, InvalidModelError) as error:
            _withdraw(self._chosen, f"the network with the alternatives does not build: {error.message}")
            return None
        return path

    def _time(
        self,
        libraries: Mapping[str, Path],
        candidates: Sequence[Candidate],
        *,
        decide: float | None = None,
    ) -> _Times | None:
        """Time networks; return None if one of them fails. `decide` is as for `time_models`.

        They are weighted sums over the functions that have kernels of these candidates: the others do not differ.
        """
        names = {name for candidate in candidates for name in candidate.direct.task.names}
        entries = {entry.name: entry.weight for entry in self.entries if entry.kernels & names} or {"main": 1}
        total, slowdown = dict.fromkeys(libraries, 0.0), 1.0
        try:
            for entry, weight in entries.items():
                networks = SideBySide(
                    device=self.runner,
                    libraries=libraries,
                    inputs=next(input_set for input_set in self.sets if input_set.entry == entry).inputs,
                    entry=entry,
                    threads=self.threads,
                )
                latency = time_models(
                    networks,
                    limits=self.limits,
                    on_round=lambda _: self.on_step(),
                    rounds=rounds_for(len(entries)),
                    decide=decide,
                )
                if is_quiet(list(latency.values())) is False:
                    slowdown = max(slowdown, *(network.slowdown for network in latency.values()))
                for name, network in latency.items():
                    total[name] += weight * network.median_sec
        except RunFailed:
            return None
        return _Times(total, slowdown)


def _withdraw(candidates: Sequence[Candidate], reason: str) -> None:
    for candidate in candidates:
        candidate.chosen, candidate.reason = False, reason
