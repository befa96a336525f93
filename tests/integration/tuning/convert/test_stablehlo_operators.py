"""StableHLO operations as ONNX: ONNX Runtime computes what JAX does."""

from __future__ import annotations

import pytest
from stablehlo_run import assert_like_jax
from stablehlo_zoo import CASES


@pytest.mark.matrix(every=12, each_value=False)
@pytest.mark.parametrize("name", CASES)
def test_onnx_computes_what_jax_does(name: str) -> None:
    function, inputs = CASES[name]
    assert_like_jax(function, *inputs)
