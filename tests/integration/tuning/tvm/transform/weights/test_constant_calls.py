"""Calls on constants have the values that TVM's own pass gives them, and are computed without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import values_of
from tunefarm_tuning.tvm.transform.weights.fold import fold_weights

GRID = np.array([[0.5, -1.25, 3.0], [2.0, 0.0, -0.75]], np.float32)
COUNTS = np.array([[4, -1, 7], [0, 2, -9]], np.int64)


def const(value: Any) -> Any:
    return relax.const(value, str(value.dtype))


def returning(call: Any) -> tvm.IRModule:
    """Return a network without inputs that returns the value of a call."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(call))
        builder.emit_func_output(result)
    return builder.get()


def constant_of(mod: tvm.IRModule) -> Any:
    """Return the constant that a network returns; None if it computes what it returns."""
    func = mod["main"]
    value = values_of(func).get(func.body.body, func.body.body)
    return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None


CALLS: dict[str, Callable[[], Any]] = {
    "abs": lambda: relax.op.abs(const(COUNTS)),
    "add": lambda: relax.op.add(const(COUNTS), const(COUNTS[:1])),
    "astype from floats": lambda: relax.op.astype(const(GRID), "int32"),
    "astype from booleans": lambda: relax.op.astype(const(COUNTS > 0), "float32"),
    "astype to booleans": lambda: relax.op.astype(const(GRID), "bool"),
    "broadcast_to": lambda: relax.op.broadcast_to(const(COUNTS[:1]), (4, 3)),
    "concat": lambda: relax.op.concat([const(GRID), const(GRID)], axis=-1),
    "cos": lambda: relax.op.cos(const(GRID)),
    "divide": lambda: relax.op.divide(const(GRID), const(GRID[:1])),
    "equal": lambda: relax.op.equal(const(COUNTS), const(COUNTS[:1])),
    "exp": lambda: relax.op.exp(const(GRID)),
    "expand_dims": lambda: relax.op.expand_dims(const(COUNTS), [0, -1]),
    "floor": lambda: relax.op.floor(const(GRID)),
    "greater": lambda: relax.op.greater(const(GRID), const(GRID[1:])),
    "log": lambda: relax.op.log(const(np.abs(GRID))),
    "logical_and": lambda: relax.op.logical_and(const(COUNTS > 0), const(GRID > 0)),
    "logical_not": lambda: relax.op.logical_not(const(COUNTS > 0)),
    "matmul": lambda: relax.op.matmul(const(GRID), const(np.ascontiguousarray(GRID.T))),
    "mean": lambda: relax.op.mean(const(GRID), [1], keepdims=True),
    "mean of all": lambda: relax.op.mean(const(GRID)),
    "maximum": lambda: relax.op.maximum(const(GRID), const(GRID[1:])),
    "negative": lambda: relax.op.negative(const(COUNTS)),
    "permute_dims": lambda: relax.op.permute_dims(const(COUNTS)),
    "power": lambda: relax.op.power(const(np.abs(GRID)), const(GRID)),
    "relu": lambda: relax.op.nn.relu(const(GRID)),
    "reshape": lambda: relax.op.reshape(const(COUNTS), (3, -1)),
    "shape_to_tensor": lambda: relax.op.shape_to_tensor(relax.ShapeExpr([2, 3, 5])),
    "sigmoid": lambda: relax.op.sigmoid(const(GRID)),
    "sin": lambda: relax.op.sin(const(GRID)),
    "softmax": lambda: relax.op.nn.softmax(const(GRID), axis=0),
    "squeeze": lambda: relax.op.squeeze(const(GRID[None]), [0]),
    "strided_slice": lambda: relax.op.strided_slice(const(COUNTS), [1, 0], [-2, 0], [9, 2], [1, 2]),
    "strided_slice of nothing more": lambda: relax.op.strided_slice(const(GRID), [1], [1], [3]),
    "subtract": lambda: relax.op.subtract(const(GRID), const(GRID[:1])),
    "take": lambda: relax.op.take(const(GRID), const(np.array([[2, 0], [1, 1]])), axis=1),
    "tanh": lambda: relax.op.tanh(const(GRID)),
    "where": lambda: relax.op.where(const(GRID > 0), const(COUNTS), const(COUNTS[:1])),
    "where to minus infinity": lambda: relax.op.where(
        const(GRID > 0), const(GRID), const(np.full((1, 1), -np.inf, np.float32))
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_value_is_the_one_that_tvm_computes(name: str) -> None:
    network = returning(CALLS[name]())
    ours = constant_of(fold_weights(network))
    theirs = constant_of(relax.transform.FoldConstant()(network))
    assert ours is not None
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


LEFT_TO_TVM: dict[str, Callable[[], Any]] = {
    "integers divided": lambda: relax.op.divide(const(COUNTS), const(COUNTS[:1] + 2)),
    "a product of float16": lambda: relax.op.matmul(
        const(GRID.astype(np.float16)), const(GRID.T.astype(np.float16))
    ),
    "an index outside": lambda: relax.op.take(const(GRID), const(np.array([3])), axis=1, mode="wrap"),
    "a slice backwards": lambda: relax.op.strided_slice(const(GRID), [1], [2], [0], [-1]),
    "what is no number": lambda: relax.op.sqrt(const(GRID)),
    "an infinite integer": lambda: relax.op.astype(const(GRID / np.float32(0)), "int32"),
    "a result that is huge": lambda: relax.op.broadcast_to(const(GRID), (1 << 19, 2, 3)),
}


@pytest.mark.parametrize("name", LEFT_TO_TVM)
def test_what_numpy_may_compute_otherwise_is_left_to_tvm(name: str) -> None:
    with np.errstate(all="ignore"):
        network = returning(LEFT_TO_TVM[name]())
    assert constant_of(fold_weights(network)) is None


def test_steps_one_after_the_other_are_folded() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            mask = builder.emit(relax.op.less(const(COUNTS), relax.const(np.int64(0), "int64")))
            counted = builder.emit(relax.op.astype(mask, "float32"))
            result = builder.emit_output(relax.op.multiply(counted, relax.const(-1e4, "float32")))
        builder.emit_func_output(result)
    np.testing.assert_array_equal(constant_of(fold_weights(builder.get())), (COUNTS < 0) * np.float32(-1e4))
