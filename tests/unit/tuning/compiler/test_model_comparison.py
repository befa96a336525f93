"""What a comparison tells, and the warnings of a compile about weights in fewer bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tunefarm_tuning.compiler.model_comparison import (
    ModelComparison,
    rounding_of,
    storage_warnings,
    wrong_because,
)
from tunefarm_tuning.reference.comparison import STEPS, compare_arrays
from tunefarm_tuning.reference.onnx_runtime import InputSet
from tunefarm_tuning.reference.widths import width_of_steps
from tunefarm_tuning.workload.precision import Precision

STORED = tuple(precision for precision in Precision if precision is not Precision.AS_MODEL)
ALL, SOME, NONE = ({"stored": stored, "kept": kept} for stored, kept in ((3, 0), (2, 1), (0, 3)))


@pytest.mark.parametrize("precision", STORED)
def test_a_precision_is_blamed_where_weights_are_stored(precision: Precision) -> None:
    assert precision.value in wrong_because(precision, SOME)
    assert wrong_because(precision, NONE) == wrong_because(precision, {}) == ""
    assert wrong_because(Precision.AS_MODEL, ALL) == ""


@pytest.mark.parametrize("precision", STORED)
def test_the_tolerance_is_that_of_what_was_done(precision: Precision) -> None:
    assert rounding_of(precision, SOME) == precision.rounding
    assert rounding_of(precision, NONE) == rounding_of(precision, {}) == "float32"


@pytest.mark.parametrize("precision", STORED)
def test_weights_that_stay_are_reported_without_an_unknown_cause(precision: Precision) -> None:
    """They may be beyond the precision, or in a kernel that cannot read them so: they are counted as one."""
    assert storage_warnings(precision, ALL) == storage_warnings(Precision.AS_MODEL, NONE) == []
    (none,) = storage_warnings(precision, NONE)
    some = storage_warnings(precision, SOME)
    if precision.multiplies:
        assert none.startswith(f"no product is computed in {precision.value}:")
        assert "stay float32: 1 " in some[0]
        # Depthwise and grouped products are computed in float16.
        assert ("depthwise, grouped" in some[0]) == (precision is Precision.BFLOAT16)
        assert ("cannot be cut" in some[0]) == (precision is Precision.FLOAT16)
        return
    assert none.startswith(f"no weight is stored as {precision.value}:")
    assert none.endswith("in a kernel that can read this format")
    if precision is Precision.INT8_WEIGHTS:
        assert some == [], "the others of a model that is partly quantised are what it has"
    else:
        (sentence,) = some
        assert "stay float32: 1 " in sentence
        assert "or in a kernel that cannot" in sentence


@pytest.mark.parametrize(
    ("moved", "says_nothing"), [((0.02, 0.001), False), ((0.5, 0.001), False), ((0.5, 0.4), True)]
)
def test_a_network_that_rounds_tells_something_where_its_own_runs_agree_on_a_set(
    moved: tuple[float, float], says_nothing: bool
) -> None:
    plain = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    sets = []
    for number, share in enumerate(moved):
        width = width_of_steps(plain, [plain, plain + np.float32(share)])
        comparison = compare_arrays("y", plain, plain, rounding=STEPS, width=width)
        files = {"inputs": Path("inputs"), "expected": Path("outputs")}
        sets.append((InputSet(seed=number, rounding=STEPS, **files), (comparison,)))
    assert ModelComparison(sets=tuple(sets)).says_nothing == says_nothing


@pytest.mark.parametrize(
    ("rounding", "wrong", "may_be_ties"),
    [
        (STEPS, (True, False), True),
        (STEPS, (True, True), False),  # it may be a fault of how parts are joined
        (STEPS, (False, False), False),
        ("float32", (True, False), False),
    ],
)
def test_ties_explain_what_is_wrong_on_some_inputs_of_a_network_that_rounds(
    rounding: str, wrong: tuple[bool, bool], may_be_ties: bool
) -> None:
    plain = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    sets = []
    for number, is_wrong in enumerate(wrong):
        given = plain + np.float32(5) if is_wrong else plain
        comparison = compare_arrays("y", given, plain, rounding=rounding)
        files = {"inputs": Path("inputs"), "expected": Path("outputs")}
        sets.append((InputSet(seed=number, rounding=rounding, **files), (comparison,)))
    compared = ModelComparison(sets=tuple(sets))
    assert compared.may_be_ties == may_be_ties
    assert compared.ok == (not any(wrong))
    assert [given.seed for given in compared.right_sets] == [n for n in (0, 1) if not wrong[n]]
    assert replace(compared, excused=True).ok
