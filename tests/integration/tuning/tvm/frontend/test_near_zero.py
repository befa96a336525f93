"""Functions that are their own argument near zero keep its digits there: an output of nothing but such numbers would be refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import GraphBuilder
from onnx_reference import built_outputs

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding


@pytest.mark.parametrize(("dtype", "error"), [("float32", 5e-7), ("float64", 1e-15)])
@pytest.mark.parametrize(
    ("operator", "function"),
    [
        ("Sinh", np.sinh),
        ("Tanh", np.tanh),
        ("Asinh", np.arcsinh),
        ("Atan", np.arctan),
        ("Atanh", np.arctanh),
    ],
)
def test_digits_are_kept(
    operator: str, function: Callable[[Any], Any], dtype: str, error: float, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    sizes = np.exp(random.uniform(-80, 4, (64, 64)))
    if operator == "Atanh":
        sizes = -np.expm1(-sizes)
    x = (sizes * random.choice([1, -1], (64, 64))).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    g = GraphBuilder()
    g.output(g.node(operator, g.input("x", [64, 64], kind)), dtype=kind)
    path = tmp_path / "model"
    path.write_bytes(g.model().SerializeToString())
    network = load_relax(path, Binding(), parse_target("host"))
    (result,) = built_outputs(network, [x], tmp_path)
    with np.errstate(divide="ignore"):
        expected = function(x.astype(np.float64)).astype(dtype)
    np.testing.assert_allclose(result, expected, rtol=error)
