"""How an error says why a network is wrong of which each part is right."""

from __future__ import annotations

import pytest

from tunefarm_tuning.compiler.phases.check_model import _whole_alone
from tunefarm_tuning.workload.precision import Precision


@pytest.mark.parametrize("precision", list(Precision))
def test_rounding_that_adds_up_is_no_fault_of_the_compiler(precision: Precision) -> None:
    words = _whole_alone(precision)
    if precision.multiplies:
        assert f"the rounding of {precision.value} may add up" in words
        assert "--precision as-model" in words
    else:
        assert words == "the fault is in how they are joined"
