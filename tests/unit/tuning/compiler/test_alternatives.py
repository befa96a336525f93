"""Which alternatives are offered to the network: those with a tuned kernel, and others by their default schedules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from tunefarm_tuning.compiler.alternatives import Candidate, find_candidates, kernels_to_time, records_of
from tunefarm_tuning.compiler.kernel_validation import (
    CheckedKernel,
    KernelValidator,
    fixed_facts,
    kernel_facts,
    missed,
)
from tunefarm_tuning.compiler.session import AlternativeInfo, CompileLimits, KernelInfo
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.findings import Findings, ScopedFindings
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config


def task(key: str, *, weight: int = 1) -> KernelInfo:
    return KernelInfo(workload_key=key, names=(key,), weight=weight, args=())


def untried(key: str) -> CheckedKernel:
    return CheckedKernel(task=task(key), record=None, miss=missed(task(key), MissReason.NO_RECORD))


def alternative(key: str, algorithm: str = "winograd-4", *, flops: float = 1e9) -> AlternativeInfo:
    product = task(f"{key}-{algorithm}")
    return AlternativeInfo(
        workload_key=key, algorithm=algorithm, tuned=product, fixed=(task(f"{key}-input"),), flops=flops
    )


def record(key: str) -> TuningRecord:
    return TuningRecord(
        workload_key=key, target_key="t", device_model="d", toolchain="c", space_key="s", config=Config(0, ()),
        outcome=Outcome.OK, samples_sec=(1e-3,), build_sec=0.0, measured_at=0.0,
    )  # fmt: skip


@dataclass
class Bench:
    """Stands for `KernelValidator`: knows how long kernels take, and notes which were timed.

    Attributes:
        slow: Keys of kernels whose record is slower than the default schedule.
        broken: Keys of kernels that do not run untuned.
    """

    untuned_sec: dict[str, float] = field(default_factory=dict)
    slow: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    timed: list[str] = field(default_factory=list)

    def check(self, kernel: KernelInfo, record: TuningRecord) -> CheckedKernel:
        key = kernel.workload_key
        miss = missed(kernel, MissReason.SLOWER_THAN_UNTUNED) if key in self.slow else None
        evidence = {"tuned_sec": [2e-3], "untuned_sec": [self.untuned_sec.get(key, 4e-3)]}
        return CheckedKernel(task=kernel, record=record, miss=miss, evidence=evidence)

    def time_untuned(self, kernel: CheckedKernel, *, timeout_sec: float) -> CheckedKernel:
        assert timeout_sec >= 1.0
        key = kernel.task.workload_key
        self.timed.append(key)
        if key in self.broken:
            return kernel
        return replace(kernel, evidence={"untuned_sec": [self.untuned_sec.get(key, 4e-3)]})

    def time_fixed(self, kernel: KernelInfo, of: str, *, runs: int) -> float | None:
        return None if kernel.name in self.broken else 5e-4


def find(
    bench: Bench, *alternatives: AlternativeInfo, records: tuple[str, ...] = (), untuned_sec: float = 60.0
) -> tuple[list[Candidate], list[CheckedKernel]]:
    return find_candidates(
        alternatives,
        [untried(key) for key in dict.fromkeys(each.workload_key for each in alternatives)],
        lambda kernel: record(kernel.workload_key) if kernel.workload_key in records else None,
        cast("KernelValidator", bench),
        lambda: None,
        untuned_sec=untuned_sec,
    )


def test_an_algorithm_without_a_record_is_offered_by_its_default_schedule() -> None:
    bench = Bench({"a": 10e-3, "a-winograd-4": 3e-3})
    (offered,), (direct,) = find(bench, alternative("a"))
    assert offered.tuned.hit is None
    assert (offered.direct_sec, offered.tuned_sec, offered.sum_sec) == (10e-3, 3e-3, 3.5e-3)
    assert offered.expected_gain_sec == 10e-3 - 3.5e-3
    assert direct.evidence["untuned_sec"] == [10e-3], "the direct kernel was timed for it"
    assert records_of([offered]) == {}


def test_a_record_that_is_slower_than_the_default_schedule_does_not_cost_the_algorithm() -> None:
    bench = Bench({"a": 10e-3, "a-winograd-4": 1e-3}, slow=frozenset({"a-winograd-4"}))
    (offered,), _ = find(bench, alternative("a"), records=("a-winograd-4",))
    assert (offered.tuned_sec, records_of([offered])) == (1e-3, {}), "its record is left out"
    assert bench.timed == ["a"], "the check had timed the untuned form"
    assert offered.facts()["configs"] == [None, None]


def test_those_with_a_record_need_no_time_and_others_get_what_there_is() -> None:
    bench = Bench({"a": 10e-3, "b": 10e-3})
    offered, _ = find(bench, alternative("a"), alternative("b"), records=("b-winograd-4",), untuned_sec=-1.0)
    assert [candidate.info.workload_key for candidate in offered] == ["b"]
    assert bench.timed == []


def test_the_largest_come_first_and_the_smallest_are_not_worth_a_timing() -> None:
    bench = Bench(dict.fromkeys("abc", 10e-3))
    few = alternative("a", flops=1e6), alternative("b", flops=1e8), alternative("c", flops=1e9)
    offered, _ = find(bench, *few)
    assert bench.timed == ["c-winograd-4", "c", "b-winograd-4", "b"]
    assert [candidate.info.workload_key for candidate in offered] == ["b", "c"], "in the order of the network"


def test_what_does_not_run_is_not_offered() -> None:
    bench = Bench({"a": 10e-3, "b": 10e-3}, broken=frozenset({"a-winograd-4", "b-input"}))
    offered, _ = find(bench, alternative("a"), alternative("b"))
    assert offered == []


def test_what_takes_longer_is_told_and_its_other_kernels_are_not_timed() -> None:
    (offered,), _ = find(Bench({"a": 2e-3, "a-winograd-4": 3e-3}), alternative("a"))
    assert (offered.fixed_sec, offered.expected_gain_sec) == ({}, 2e-3 - 3e-3)


def test_kernels_that_an_earlier_compile_timed_are_not_built_ahead() -> None:
    info, direct, limits = alternative("conv"), task("conv"), CompileLimits()
    findings = Findings()

    def left(seed: int = 0) -> list[str]:
        kernels = kernels_to_time(info, direct, findings_now(), seed=seed, limits=limits)
        return [kernel.name for kernel in kernels]

    def findings_now() -> ScopedFindings:
        return Findings(findings.noted.get).within()

    assert left() == ["conv", "conv-winograd-4", "conv-input"]
    facts = kernel_facts(info.tuned, None, seed=0, limits=limits)
    findings.within().note("untuned", facts, {"calls_sec": [1.0]})
    assert left() == ["conv", "conv-input"]
    findings.within().note("fixed", fixed_facts(info.fixed[0], "conv/winograd-4/0", 3), {"call_sec": 1.0})
    assert left() == ["conv"]
    assert left(seed=1) == ["conv", "conv-winograd-4"]
