"""Indices that depend on constants alone stay within their tensors; others are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tunefarm_tuning.tvm.transform.constant_indices import bound_constant_indices

DATA = np.arange(12, dtype=np.float32).reshape(4, 3)
FAR = 1 << 40


def folded(make: Callable[[Any], Any], *, indices: np.ndarray, computed: bool) -> np.ndarray:
    """Return what TVM computes of constants, of which the indices are a sum if they are computed."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            given = relax.const(indices - 1 if computed else indices, str(indices.dtype))
            if computed:
                step = relax.const(np.array(1, indices.dtype), str(indices.dtype))
                given = builder.emit(relax.op.add(given, step))
            result = builder.emit_output(make(given))
        builder.emit_func_output(result)
    constant = relax.transform.FoldConstant()(bound_constant_indices(builder.get()))["main"]
    value: np.ndarray = constant.body.body.value.numpy()
    return value


def data() -> Any:
    return relax.const(DATA, "float32")


def update(*shape: int) -> Any:
    return relax.const(np.full(shape, -1, np.float32), "float32")


CASES = {
    "take": (lambda i: relax.op.take(data(), i, 0), [3, 1], [FAR, -FAR], DATA[[3, 1]], DATA[[3, 0]]),
    "take flat": (lambda i: relax.op.take(relax.const(DATA.reshape(-1), "float32"), i), [11, 1], [FAR, 1], DATA.flat[[11, 1]], DATA.flat[[11, 1]]),
    "gather_elements": (
        lambda i: relax.op.gather_elements(data(), i, 0),
        [[3, 1, 0]],
        [[FAR, -FAR, 0]],
        [[9, 4, 2]],
        [[9, 1, 2]],
    ),
    "gather_nd": (
        lambda i: relax.op.gather_nd(data(), i),
        [[3, 2], [0, 1]],
        [[FAR, 2], [0, FAR]],
        [11, 1],
        [11, 2],
    ),
    "scatter_nd": (
        lambda i: relax.op.scatter_nd(data(), i, update(1, 3)),
        [[3]],
        [[FAR]],
        [*DATA[:3], [-1, -1, -1]],
        [*DATA[:3], [-1, -1, -1]],
    ),
    "scatter_elements": (
        lambda i: relax.op.scatter_elements(data(), i, update(1, 3), axis=0),
        [[-1, 3, 3]],
        [[FAR, FAR, 3]],
        [*DATA[:3], [-1, -1, -1]],
        [*DATA[:3], [-1, -1, -1]],
    ),
}  # fmt: skip


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_an_index_ends_at_its_tensors_end(name: str, *, computed: bool) -> None:
    make, right, wrong, expected, cut = CASES[name]
    for indices, values in ((right, expected), (wrong, cut)):
        result = folded(make, indices=np.array(indices, np.int64), computed=computed)
        np.testing.assert_array_equal(result, np.array(values, np.float32))


def test_indices_known_at_run_time_only_and_narrow_ones_are_as_before() -> None:
    builder = relax.BlockBuilder()
    given = relax.Var("i", relax.TensorType((2,), "int64"))
    narrow = relax.const(np.array([255], np.uint8), "uint8")
    large = relax.const(np.zeros(5000, np.float32), "float32")
    with builder.function("main", [given]):
        with builder.dataflow():
            builder.emit(relax.op.take(large, narrow, 0))
            result = builder.emit_output(relax.op.take(data(), given, 0))
        builder.emit_func_output(result)
    before = builder.get()
    names = [
        str(binding.value.op.name)
        for binding in bound_constant_indices(before)["main"].body.blocks[0].bindings
    ]
    assert names == ["relax.take", "relax.take"]
