"""Linear resizing by rows and columns, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, reference_outputs

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import load_relax

HOST = parse_target("host")


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("sizes", [(12, 20), (3, 9), (1, 5), (11, 4)])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_it_is_what_onnxruntime_computes(
    mode: str, sizes: tuple[int, int], *, special: bool, tmp_path: Path
) -> None:
    g = GraphBuilder(seed=2)
    x = g.node("Relu", g.input("x", [2, 5, 6, 5]))
    y = g.node("Resize", x, "", "", g.ints(2, 5, *sizes), mode="linear", coordinate_transformation_mode=mode)
    g.output(g.node("Neg", y))
    path = tmp_path / "model"
    path.write_bytes(g.model().SerializeToString())
    loaded = load_relax(path, {}, HOST)
    value = np.random.default_rng(3).normal(size=(2, 5, 6, 5)).astype(np.float32)
    if (
        special and "half_pixel" in mode and sizes != (1, 5)
    ):  # where no weight is zero: TVM leaves out what one is of
        value[0, 0, 2, 2], value[0, 1, 0, 0], value[1, 2, 5, 4] = np.nan, np.inf, np.inf
    # Rows are vectors where it is scheduled.
    (found,) = built_outputs(loaded, [value], tmp_path, scheduled=True)
    (expected,) = reference_outputs(path, loaded, [value])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    names = [kernel.name for kernel in primfunc_workloads(loaded.module)]
    assert len(names) == 1, names
