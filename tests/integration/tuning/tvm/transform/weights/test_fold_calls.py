"""Calls on constants become their values, the same as by TVM's own pass, and no kernel is written for the other calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from tunefarm_tuning.tvm.base.relax_graph import values_of
from tunefarm_tuning.tvm.transform.weights.fold_calls import fold_calls

X = relax.TensorType([2, 3], "float32")


def module(emit: Callable[[relax.BlockBuilder, Any], Any]) -> tvm.IRModule:
    """Return a network of one input; `emit` emits its steps and returns the last."""
    builder, x = relax.BlockBuilder(), relax.Var("x", X)
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(emit(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def numbers(*shape: int) -> Any:
    return relax.const(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), "float32")


def by_kernel(builder: relax.BlockBuilder, value: Any) -> Any:
    """Return a call of a kernel that doubles a tensor."""
    tensor = te.placeholder((tirx.IntImm("int64", 2), tirx.IntImm("int64", 3)), name="t")
    doubled = te.compute(tensor.shape, lambda i, j: tensor[i, j] * tirx.const(2.0, "float32"))
    kernel = builder.add_func(te.create_prim_func([tensor, doubled]), "double")
    return relax.call_tir(kernel, [value], out_ty=X)


NETWORKS: dict[str, Callable[[relax.BlockBuilder, Any], Any]] = {
    "one after the other": lambda builder, x: relax.op.add(
        x, builder.emit(relax.op.exp(builder.emit(relax.op.reshape(numbers(6), (2, 3)))))
    ),
    "several operands": lambda builder, x: relax.op.multiply(
        x, builder.emit(relax.op.concat([numbers(1, 3), numbers(1, 3)], axis=0))
    ),
    "by shape alone": lambda builder, x: relax.op.subtract(x, builder.emit(relax.op.ones_like(x))),
    "without operands": lambda builder, x: relax.op.add(x, builder.emit(relax.op.zeros((2, 3), "float32"))),
    "several results": lambda builder, x: relax.op.add(
        x, builder.emit(relax.TupleGetItem(builder.emit(relax.op.split(numbers(4, 3), 2, axis=0)), 1))
    ),
    "a shape": lambda builder, x: relax.op.add(
        x,
        builder.emit(
            relax.op.broadcast_to(
                numbers(1, 3),
                builder.emit(relax.op.tensor_to_shape(relax.const(np.array([2, 3], np.int64), "int64"))),
            )
        ),
    ),
    "a kernel": lambda builder, x: relax.op.add(x, builder.emit(by_kernel(builder, numbers(2, 3)))),
    "a kernel on the input": by_kernel,
    "an unused step": lambda builder, x: (builder.emit(relax.op.exp(x)), relax.op.nn.relu(x))[1],
    "nothing": lambda builder, x: relax.op.nn.relu(builder.emit(relax.op.exp(x))),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_is_folded_as_by_tvms_pass(name: str) -> None:
    network = module(NETWORKS[name])
    tvm.ir.assert_structural_equal(
        fold_calls(network), relax.transform.FoldConstant()(network), map_free_vars=True
    )


def test_a_constant_result_is_folded() -> None:
    folded = fold_calls(module(lambda _, _x: relax.op.exp(numbers(2, 3))))["main"]
    value = values_of(folded).get(folded.body.body, folded.body.body)
    np.testing.assert_allclose(value.value.numpy(), np.exp(np.arange(6.0)).reshape(2, 3), rtol=1e-5)


def test_no_kernel_is_written_for_other_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    call_te = relax.BlockBuilder.call_te

    def noted(builder: relax.BlockBuilder, function: Any, *args: Any, **options: Any) -> Any:
        written.append(function)
        return call_te(builder, function, *args, **options)

    monkeypatch.setattr(relax.BlockBuilder, "call_te", noted)
    fold_calls(module(NETWORKS["nothing"]))
    assert written == []
    fold_calls(module(NETWORKS["one after the other"]))
    assert len(written) == 2
