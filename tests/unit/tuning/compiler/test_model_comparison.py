"""The warnings of a compile about weights in fewer bytes."""

from __future__ import annotations

import pytest

from tunefarm_tuning.compiler.model_comparison import storage_warnings, tolerance_of, wrong_because
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
    assert tolerance_of(precision, SOME) == precision.tolerance
    assert tolerance_of(precision, NONE) == tolerance_of(precision, {}) == "float32"


@pytest.mark.parametrize("precision", STORED)
def test_weights_that_stay_are_reported_without_an_unknown_cause(precision: Precision) -> None:
    """They may be beyond the precision, or in a kernel that cannot read them so: they are counted as one."""
    assert storage_warnings(precision, ALL) == storage_warnings(Precision.AS_MODEL, NONE) == []
    (none,) = storage_warnings(precision, NONE)
    assert none.startswith(f"no weight is stored as {precision.value}:")
    assert none.endswith("in a kernel that can read this format")
    some = storage_warnings(precision, SOME)
    if precision is Precision.INT8_WEIGHTS:
        assert some == [], "the others of a model that is partly quantised are what it has"
    else:
        (sentence,) = some
        assert "stay float32: 1 " in sentence
        assert "or in a kernel that cannot" in sentence
