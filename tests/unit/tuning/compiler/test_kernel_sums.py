"""What the kernels of a network take alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tunefarm_tuning.compiler.alternatives import Candidate, SelectedAlternatives
from tunefarm_tuning.compiler.kernel_sums import KernelSums, kernel_sums
from tunefarm_tuning.compiler.kernel_validation import CheckedKernel, missed
from tunefarm_tuning.compiler.session import AlternativeInfo, EntryInfo, KernelInfo
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.records.coverage import MissReason
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.space.config import Config

MAIN = EntryInfo(name="main", weight=1, kernels=frozenset({"a", "b", "c"}))
DIRECT = SelectedAlternatives(library=Path("direct.so"))


def kernel(
    key: str, record_sec: float, tuned_sec: list[float], untuned_sec: list[float], *, weight: int = 1
) -> CheckedKernel:
    record = TuningRecord(
        workload_key=key, target_key="t", device_model="d", toolchain="c", space_key="s", config=Config(0, ()),
        outcome=Outcome.OK, samples_sec=(record_sec,), build_sec=0.0, measured_at=0.0,
    )  # fmt: skip
    return CheckedKernel(
        task=KernelInfo(workload_key=key, names=(key,), weight=weight, args=()),
        record=record,
        miss=None,
        evidence={"tuned_sec": tuned_sec, "untuned_sec": untuned_sec},
    )


A = kernel("a", 1.0, [3.0, 4.0, 5.0], [9.0, 2.0], weight=2)
B = kernel("b", 6.0, [5.0, 5.0, 7.0], [4.0])


def test_each_counts_with_the_least_of_its_times_and_all_its_calls() -> None:
    sums = kernel_sums([A, B], DIRECT, MAIN, network_sec=100.0)
    assert sums == KernelSums(tuned_sec=2 * 1.0 + 5.0, untuned_sec=2 * 2.0 + 4.0, kernels=2)
    assert sums.pays
    assert str(sums) == "the tuned kernels alone take 7.00 s at their fastest, and 8.00 s untuned"
    assert not kernel_sums([B], DIRECT, MAIN, network_sec=100.0).pays
    assert KernelSums(tuned_sec=2.25, untuned_sec=2.20, kernels=1).pays


def test_no_more_than_the_whole_network_takes_untuned_counts() -> None:
    """A check beside other work said 11.7 ms of kernels whose network takes 14.8 µs, and slower kernels were kept for it."""
    sums = kernel_sums([A, B], DIRECT, MAIN, network_sec=6.0)
    assert sums == KernelSums(tuned_sec=7.0, untuned_sec=6.0, kernels=2, is_bound=True)
    assert not sums.pays
    assert str(sums) == (
        "the tuned kernels alone take 7.00 s at their fastest, and at most 6.00 s untuned, as the whole untuned network does"
    )


@pytest.mark.parametrize(
    "out",
    [
        replace(A, miss=missed(A.task, MissReason.WRONG_ANSWER)),
        replace(A, evidence={}),
        replace(A, task=replace(A.task, names=("of another function",))),
    ],
)
def test_a_kernel_that_the_function_does_not_run_tuned_does_not_count(out: CheckedKernel) -> None:
    assert kernel_sums([out, B], DIRECT, MAIN, network_sec=100.0) == kernel_sums(
        [B], DIRECT, MAIN, network_sec=100.0
    )


def test_an_alternative_counts_with_all_its_kernels() -> None:
    product = kernel("a-matmul", 0.5, [0.75], [1.0], weight=2)
    info = AlternativeInfo(workload_key="a", algorithm="winograd-4", tuned=product.task, fixed=())
    chosen = Candidate(info=info, direct=A, tuned=product, fixed_sec={"input": 0.25}, chosen=True)
    alternatives = SelectedAlternatives(library=Path("chosen.so"), candidates=(chosen,))
    assert kernel_sums([A, B], alternatives, MAIN, network_sec=100.0) == KernelSums(
        tuned_sec=2 * (0.5 + 0.25) + 5.0, untuned_sec=2 * 2.0 + 4.0, kernels=2
    )


def test_an_alternative_without_a_tuned_kernel_counts_with_its_untuned_one() -> None:
    task = KernelInfo(workload_key="a-matmul", names=("a-matmul",), weight=2, args=())
    product = CheckedKernel(
        task=task,
        record=None,
        miss=missed(task, MissReason.NO_RECORD),
        evidence={"untuned_sec": [0.5, 0.75, 1.0]},
    )
    info = AlternativeInfo(workload_key="a", algorithm="winograd-4", tuned=task, fixed=())
    chosen = Candidate(info=info, direct=A, tuned=product, fixed_sec={"input": 0.25}, chosen=True)
    alternatives = SelectedAlternatives(library=Path("chosen.so"), candidates=(chosen,))
    assert kernel_sums([A], alternatives, MAIN, network_sec=100.0) == KernelSums(
        tuned_sec=2 * (0.75 + 0.25), untuned_sec=2 * 2.0, kernels=1
    )
