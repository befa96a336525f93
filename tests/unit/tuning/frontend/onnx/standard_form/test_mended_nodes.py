"""Nodes that ONNX Runtime refuses for their form alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import GraphBuilder

from tunefarm_tuning.frontend.onnx.standard_form.form import in_standard_form


def run(model: onnx.ModelProto, **feeds: NDArray[Any]) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def transposed(*perm: int) -> onnx.ModelProto:
    g = GraphBuilder()
    y = g.node("Transpose", g.input("x", [2, 3, 4, 5]), perm=list(perm))
    g.output(y, None)
    return g.model()


def sampled(dtype: int, grid_dtype: int) -> onnx.ModelProto:
    g = GraphBuilder()
    x = g.input("x", [1, 2, 5, 6], dtype)
    shift = g.constant(np.array(0.125, onnx.helper.tensor_dtype_to_np_dtype(grid_dtype)))
    grid = g.node("Add", g.input("grid", [1, 4, 3, 2], grid_dtype), shift)
    g.output(g.node("GridSample", x, grid, mode="bilinear"), None, dtype)
    return g.model()


def test_axes_that_are_counted_from_the_end_are_counted_from_the_front() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    model = transposed(0, -2, -1, 1)
    with pytest.raises(Exception, match="Invalid attribute perm"):
        run(model, x=x)
    assert (run(in_standard_form(model), x=x) == x.transpose(0, 2, 3, 1)).all()


@pytest.mark.parametrize("perm", [(0, 1, 2, -5), (0, 1, 1, -2)])
def test_axes_that_are_none_are_refused_as_before(perm: tuple[int, ...]) -> None:
    x = np.zeros((2, 3, 4, 5), np.float32)
    with pytest.raises(Exception, match="perm"):
        run(in_standard_form(transposed(*perm)), x=x)


def test_a_grid_of_float64_is_read_as_float32() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 2, 5, 6)).astype(np.float32)
    grid = random.uniform(-1.2, 1.2, (1, 4, 3, 2))
    model = sampled(TensorProto.FLOAT, TensorProto.DOUBLE)
    with pytest.raises(Exception, match="implementation for GridSample"):
        run(model, x=x, grid=grid)
    expected = run(sampled(TensorProto.FLOAT, TensorProto.FLOAT), x=x, grid=grid.astype(np.float32))
    np.testing.assert_allclose(run(in_standard_form(model), x=x, grid=grid), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "grid_dtype"),
    [(TensorProto.FLOAT, TensorProto.FLOAT), (TensorProto.DOUBLE, TensorProto.DOUBLE)],
)
def test_grids_as_wide_as_the_image_stay(dtype: int, grid_dtype: int) -> None:
    model = sampled(dtype, grid_dtype)
    before = model.SerializeToString(deterministic=True)
    assert in_standard_form(model).SerializeToString(deterministic=True) == before


def test_a_cast_says_the_type_of_its_result_whatever_the_file_says() -> None:
    g = GraphBuilder()
    x = g.input("x", [2, 3], TensorProto.FLOAT16)
    wide = g.node("Cast", x, to=TensorProto.FLOAT)
    kept = g.node("Relu", wide)
    g.output(g.node("Cast", kept, to=TensorProto.FLOAT16), None, TensorProto.FLOAT16)
    model = g.model()
    for name, dtype in ((wide, TensorProto.FLOAT16), (kept, TensorProto.FLOAT)):
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, dtype, [2, 3]))
    values = np.array([[1, -2, 3], [-4, 5, -6]], np.float16)
    with pytest.raises(Exception, match="does not match expected type"):
        run(model, x=values)
    mended = in_standard_form(model)
    assert (run(mended, x=values) == np.maximum(values, 0)).all()
    assert [value.name for value in mended.graph.value_info] == [kept]
