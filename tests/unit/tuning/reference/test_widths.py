"""How far outputs may be from the reference, and which faults are found within that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tunefarm_tuning.compiler.model_comparison import LARGEST_WIDTH
from tunefarm_tuning.reference.comparison import (
    BFLOAT16,
    STEPS,
    TIES,
    Comparison,
    compare_arrays,
    width_with_shares,
)
from tunefarm_tuning.reference.widths import (
    Width,
    load_widths,
    reference_of,
    save_widths,
    width_of,
    with_tail,
)

RNG_SEED = 7
ROUNDING = 3e-7


def rounded(exact: NDArray[Any], seed: int, share: float = ROUNDING) -> NDArray[np.float32]:
    """Return what a runtime computes: every element off by chance, by a share of the root mean square."""
    rng = np.random.default_rng(seed)
    scale = np.sqrt(np.mean(np.square(exact)))
    return (exact + share * scale * rng.standard_normal(exact.shape)).astype(np.float32)


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-logits))


def compared(actual: NDArray[Any], runs: list[NDArray[Any]], exact: NDArray[Any] | None) -> Comparison:
    reference = reference_of(runs, exact)
    return compare_arrays("y", actual, reference, width=width_of(reference, runs))


def normal(*shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(RNG_SEED).standard_normal(shape)


@pytest.mark.parametrize("shape", [(1, 1), (1, 10), (1, 1000), (1, 8, 32, 32), (1, 300, 6)])
def test_another_order_of_sums_is_right(shape: tuple[int, ...]) -> None:
    exact = normal(*shape)
    runs: list[NDArray[Any]] = [rounded(exact, seed) for seed in range(4)]
    for seed in range(10, 40):
        assert compared(rounded(exact, seed), runs, exact).ok
        assert compared(rounded(exact, seed), runs, None).ok


def test_errors_of_winograds_convolution_are_right() -> None:
    exact = normal(1, 16, 28, 28)
    runs: list[NDArray[Any]] = [rounded(exact, seed) for seed in range(4)]
    # the largest error is thirty times as large, the median five times
    error = 3e-6 * np.clip(np.random.default_rng(1).standard_cauchy(exact.shape), -10, 10)
    assert compared((exact + 0.4 * error).astype(np.float32), runs, exact).ok


def test_a_saturated_sigmoid_is_right_where_onnx_runtime_clamps_it() -> None:
    logits = normal(1, 1, 64, 64) * 2 - 25
    exact = sigmoid(logits)
    # ONNX Runtime's own sigmoid ends at -18
    runs: list[NDArray[Any]] = [np.where(logits < -18, 0.0, exact).astype(np.float32)] * 3
    assert compared(exact.astype(np.float32), runs, exact).ok
    assert compared(runs[0], runs, exact).ok


def test_outputs_near_zero_are_compared_by_their_own_size() -> None:
    exact = 1e-6 * normal(1, 1000)
    runs: list[NDArray[Any]] = [rounded(exact, seed) for seed in range(4)]
    assert compared(rounded(exact, 9), runs, exact).ok
    assert not compared((1.001 * exact).astype(np.float32), runs, exact).ok


def test_coordinates_do_not_hide_wrong_scores() -> None:
    exact = normal(1, 300, 6) * np.array([300, 300, 300, 300, 1, 0.01])
    runs = [
        np.concatenate([rounded(exact[..., i], 10 * seed + i)[..., None] for i in range(6)], -1)
        for seed in range(4)
    ]
    assert compared(runs[3], list(runs[:3]), exact).ok
    wrong = exact.astype(np.float32)
    wrong[0, 17, 4] += 0.05
    comparison = compared(wrong, list(runs), exact)
    assert not comparison.ok
    assert "[0, 17, 4]" in comparison.message


def test_one_wrong_logit_of_a_million_is_found() -> None:
    exact = normal(1000, 1000)
    runs: list[NDArray[Any]] = [rounded(exact, seed) for seed in range(3)]
    wrong = rounded(exact, 9)
    wrong[123, 456] += 1e-3
    comparison = compared(wrong, runs, exact)
    assert comparison.mismatches == 1
    assert "[123, 456]" in comparison.message


def test_a_scale_that_is_off_by_a_thousandth_is_found() -> None:
    exact = normal(1, 8, 32, 32)
    runs: list[NDArray[Any]] = [rounded(exact, seed) for seed in range(3)]
    assert not compared((1.001 * exact).astype(np.float32), runs, exact).ok


def test_a_few_chaotic_elements_do_not_hide_an_error_of_all_others() -> None:
    exact = normal(1, 1, 128, 128)
    runs: list[NDArray[Any]] = [rounded(exact, seed) for seed in range(3)]
    for run in runs:
        run[0, 0, ::17, ::13] += 0.01  # in every row and column
    assert compared(runs[0], runs, exact).ok
    comparison = compared((exact * 1.001).astype(np.float32), runs, exact)
    assert not comparison.ok
    assert "where rounding explains" in comparison.message
    assert comparison.moved > 0.005


def test_a_network_that_amplifies_rounding_has_a_wide_comparison_that_says_so() -> None:
    exact = normal(1, 1000)
    runs: list[NDArray[Any]] = [rounded(exact, seed, share=0.02) for seed in range(3)]
    comparison = compared(rounded(exact, 9, share=0.02), runs, exact)
    assert comparison.ok
    assert comparison.width > 0.1
    assert comparison.moved > 0.02


def test_a_mask_and_an_index_may_differ_where_they_tie() -> None:
    exact = np.arange(5000) % 7
    runs = [exact.copy() for _ in range(3)]
    runs[1][[5, 77]] += 1
    tied = exact.copy()
    tied[[5, 77]] += 1
    assert compared(tied, list(runs), None).ok
    assert compared(tied, list(runs), None).unsteady == 2
    wrong = exact.copy()
    wrong[100:200] += 1
    assert not compared(wrong, list(runs), None).ok


def test_a_single_index_is_only_free_if_it_ties() -> None:
    steady = [np.array([3])] * 4
    assert not compared(np.array([4]), list(steady), None).ok
    tied = [np.array([3]), np.array([4])]
    assert compared(np.array([4]), list(tied), None).ok
    assert compared(np.array([4]), list(tied), None).comparable == 0


def test_infinities_and_nan_have_to_be_where_all_runs_have_them() -> None:
    exact = np.append(normal(500), [np.inf, -np.inf, np.nan])
    runs: list[NDArray[Any]] = [exact.astype(np.float32)] * 3
    assert compared(exact.astype(np.float32), runs, exact).ok
    wrong = exact.astype(np.float32)
    wrong[500] = 1e30
    assert not compared(wrong, runs, exact).ok
    assert not compared(np.where(np.isfinite(exact), np.nan, exact).astype(np.float32), runs, exact).ok


def test_widths_are_read_as_they_were_written(tmp_path: Path) -> None:
    width = Width(
        allowed=np.ones((2, 3), np.float32),
        quantiles=(0.1, 0.2, 0.3),
        moved=0.5,
        forgiven=4,
        tail=2.5,
        narrow_quantiles=(0.4, 0.5, 0.6),
    )
    save_widths(tmp_path / "w.npz", [None, width])
    again = load_widths(tmp_path / "w.npz")
    assert again is not None
    none, same = again
    assert none is None
    assert same is not None
    assert (same.quantiles, same.moved, same.forgiven) == ((0.1, 0.2, 0.3), 0.5, 4)
    assert (same.tail, same.narrow_quantiles) == (2.5, (0.4, 0.5, 0.6))
    assert np.array_equal(same.allowed, width.allowed)
    assert load_widths(None) is None


def test_an_output_without_dimensions_has_a_width() -> None:
    runs = [np.array(value, np.float32) for value in (1.0, 1.000001)]
    width = width_of(reference_of(runs, None), runs, [])
    assert np.shape(width.allowed) == ()
    assert 0 < float(width.allowed) < 1e-3


def test_of_rounded_values_as_many_may_differ_as_tie_in_the_runs() -> None:
    reference = np.random.default_rng(3).integers(-100, 100, 4000).astype(np.int8)
    tied = reference.copy()
    tied[7] += 1
    width = width_of(reference, [reference, tied])
    forgiven = reference.copy()
    forgiven[[7, 8, 9]] += 1
    assert compare_arrays("y", forgiven, reference, rounding=TIES, width=width).ok
    scaled = np.round(reference * 1.01).astype(np.int8)
    assert np.abs(scaled - reference).max() == 1
    assert not compare_arrays("y", scaled, reference, rounding=TIES, width=width).ok
    assert compare_arrays("y", scaled, reference, width=width).ok, "of a whole network, a step is forgiven"


def test_errors_grow_from_step_to_step_where_rounded_values_are_fed_back() -> None:
    steps = np.random.default_rng(4).normal(size=(20, 1, 1, 128)).astype(np.float32)
    late = steps.copy()
    late[10:] *= 1.3
    width = width_of(steps, [steps, late], by_slices=True)
    assert compare_arrays("y", late, steps, rounding=TIES, width=width).ok
    early = steps.copy()
    early[0] *= 1.001
    assert not compare_arrays("y", early, steps, rounding=TIES, width=width).ok
    assert compare_arrays("y", early, steps, width=width_of(steps, [steps, late])).ok


@pytest.mark.parametrize("measured", [False, True])
def test_a_width_with_shares_allows_what_the_rounding_does(measured: bool) -> None:
    reference = np.random.default_rng(5).normal(size=(1, 64)).astype(np.float32)
    runs = [reference, reference + np.float32(1e-6)]
    width = width_with_shares(reference, width_of(reference, runs) if measured else None, STEPS)
    for factor in (1.05, 1.2, 3.0):
        by_rounding = compare_arrays("y", reference * factor, reference, rounding=STEPS).ok
        assert compare_arrays("y", reference * factor, reference, width=width).ok is by_rounding
    counts = np.arange(1000, dtype=np.int32)
    few = np.where(counts < 40, counts + 5, counts)
    assert compare_arrays("n", few, counts, width=width_with_shares(counts, None, STEPS)).ok
    many = np.where(counts < 60, counts + 5, counts)
    assert not compare_arrays("n", many, counts, width=width_with_shares(counts, None, STEPS)).ok


def test_where_rounded_factors_move_all_of_an_output_its_errors_may_be_distributed_alike() -> None:
    rng = np.random.default_rng(6)
    reference = rng.normal(size=(1, 4096)).astype(np.float32)

    def moved(by: float) -> np.ndarray:
        return (reference + by * rng.normal(size=reference.shape)).astype(np.float32)

    width = with_tail(reference, width_of(reference, [reference]), [moved(0.1), moved(0.1)])
    alike = compare_arrays("y", moved(0.3), reference, rounding=BFLOAT16, width=width)
    assert alike.ok
    assert alike.width > LARGEST_WIDTH, "the comparison says little, and the report that it does"
    assert not compare_arrays(
        "y", moved(0.3), reference, rounding=BFLOAT16, width=replace(width, tail=0.0)
    ).ok
    assert not compare_arrays("y", moved(0.6), reference, rounding=BFLOAT16, width=width).ok
    assert not compare_arrays("y", np.roll(reference, 1), reference, rounding=BFLOAT16, width=width).ok
    far = moved(0.1)
    far[0, 7] += 5.0
    assert not compare_arrays("y", far, reference, rounding=BFLOAT16, width=width).ok
    assert not compare_arrays("y", moved(0.3), reference, width=width).ok, "as in the model"


def test_errors_of_saturated_elements_need_not_be_distributed_alike() -> None:
    rng = np.random.default_rng(7)
    reference = np.where(rng.random((1, 4096)) < 0.1, 1.0, 1e-9).astype(np.float32)
    flipped = np.where(rng.random((1, 4096)) < 0.03, 1 - reference, reference).astype(np.float32)
    other = np.where(rng.random((1, 4096)) < 0.03, 1 - reference, reference + 1e-9).astype(np.float32)
    width = with_tail(reference, width_of(reference, [reference]), [flipped])
    assert compare_arrays("y", other, reference, rounding=BFLOAT16, width=width).ok
    assert not compare_arrays("y", 1 - reference, reference, rounding=BFLOAT16, width=width).ok
