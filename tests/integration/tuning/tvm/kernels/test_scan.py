"""Running sums and products along any axis are those of ONNX Runtime, or of numpy where it has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import TensorProto
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, reference_outputs
from tvm import relax

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.kernels.scan import Scan, legalize_scan, scan_kernel
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

HOST = parse_target("host")
SHAPES = ((7,), (3, 9, 40), (2, 6, 3, 31), (1, 1, 1), (33, 64, 32))
FLOAT, INT64, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_along_every_axis(shape: tuple[int, ...], tmp_path: Path) -> None:
    g = GraphBuilder()
    for kind in (FLOAT, DOUBLE, INT64):
        x = g.input(f"x{kind}", list(shape), kind)
        for axis in range(len(shape)):
            for exclusive, reverse in ((0, 0), (1, 0), (0, 1), (1, 1))[: 4 if kind == FLOAT else 1]:
                options = {"exclusive": exclusive, "reverse": reverse}
                g.output(g.node("CumSum", x, g.constant(np.int64(axis)), **options), None, kind)
    path = tmp_path / "net.onnx"
    path.write_bytes(g.model().SerializeToString())
    rng = np.random.default_rng(1)
    inputs = [
        rng.standard_normal(shape).astype(np.float32),
        rng.standard_normal(shape),
        rng.integers(-9, 9, shape),
    ]
    loaded = load_relax(path, Binding(), HOST)
    ours = built_outputs(loaded, inputs, tmp_path, scheduled=True)
    for output, expected in zip(ours, reference_outputs(path, loaded, inputs), strict=True):
        assert (output.shape, output.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def built(module: tvm.IRModule, folder: Path) -> relax.VirtualMachine:
    build_model(module, HOST, folder / "net.so")
    return relax.VirtualMachine(tvm.runtime.load_module(str(folder / "net.so")), tvm.cpu())


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_products_and_wider_results(axis: int | None, tmp_path: Path) -> None:
    x = relax.Var("x", relax.TensorType((6, 19), "int32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        call = builder.normalize(relax.op.cumprod(x, axis, dtype="int64"))
        builder.emit_func_output(builder.emit(legalize_scan(is_product=True)(builder, call)))
    values = np.random.default_rng(1).integers(-2, 3, (6, 19)).astype(np.int32)
    output = built(builder.get(), tmp_path)["main"](tvm.runtime.tensor(values)).numpy()
    expected = np.cumprod(values, axis, dtype=np.int64)
    np.testing.assert_array_equal(output.reshape(expected.shape), expected)


def test_columns_go_along_the_axis_together_in_vectors() -> None:
    scan = Scan(is_product=False, is_exclusive=False, dtype="float32", result_dtype="float32")
    text = scan_kernel(scan, (4, 100, 16 * 17 + 8 + 3), 1).script()
    assert text.count("T.vectorized(16)") == 2
    assert text.count("T.vectorized(8)") == 2
    assert "T.vectorized(4)" not in text
    assert "range(17)" in text
