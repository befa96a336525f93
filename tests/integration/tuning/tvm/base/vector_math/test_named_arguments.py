"""Functions whose arguments have functions: their code, their values, and what they read."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import te, tirx

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import nodes_of
from tunefarm_tuning.tvm.base.vector_math.named_arguments import with_named_arguments

_SIZE = 64
_CUBE = tirx.const(3.0, "float32")


def repeated(function: Any, depth: int) -> Any:
    return lambda x: reduce(lambda value, _: function(value), range(depth), x)


def kernel_of(element: Any, lanes: int = 8) -> Any:
    """Return the kernel of an element, by a placeholder and an index, in vectors."""
    source = te.placeholder((_SIZE,), "float32", name="source")
    func = te.create_prim_func([source, te.compute((_SIZE,), lambda i: element(source, i), name="elements")])
    schedule = tvm.s_tir.Schedule(func.with_attr("global_symbol", "main"))
    if lanes:
        _, inner = schedule.split(schedule.get_loops(schedule.get_sblock("elements"))[0], [None, lanes])
        schedule.vectorize(inner)
    return tvm.tirx.build(schedule.mod, target=tvm_target(parse_target("host")))


def evaluate(kernel: Any, values: NDArray[np.float32]) -> NDArray[np.float32]:
    output = tvm.runtime.empty(values.shape, "float32")
    kernel(tvm.runtime.tensor(values), output)
    result: NDArray[np.float32] = output.numpy()
    return result


@pytest.mark.parametrize(
    "function",
    [
        repeated(tirx.exp, 4),
        repeated(tirx.erf, 12),
        repeated(lambda x: tirx.sigmoid(tirx.tanh(x)), 8),
        repeated(tirx.log, 4),
        repeated(tirx.sin, 3),
        lambda x: x * tirx.tanh(tirx.log(1 + tirx.exp(x))),
        lambda x: tirx.tanh(x + tirx.pow(x, _CUBE)),
        pytest.param(repeated(tirx.tanh, 16), marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("lanes", [0, 8])
def test_code_grows_with_the_depth_alone(function: Any, lanes: int) -> None:
    """A formula uses its argument many times: of four in one another there would be thousands of each other."""
    code = str(kernel_of(lambda source, i: function(source[i]), lanes).inspect_source("ll"))
    assert len(code.splitlines()) < 1500


def test_values() -> None:
    values = np.linspace(-3, 3, _SIZE).astype(np.float32)
    kernel = kernel_of(lambda source, i: repeated(lambda x: tirx.sin(tirx.exp(tirx.tanh(x))), 4)(source[i]))
    expected = reduce(lambda x, _: np.sin(np.exp(np.tanh(x))), range(4), values.astype(np.float64))
    np.testing.assert_allclose(evaluate(kernel, values), expected, rtol=3e-6)


def test_an_argument_of_two_functions_is_computed_for_both() -> None:
    values = np.linspace(-3, 3, _SIZE).astype(np.float32)
    kernel = kernel_of(
        lambda source, i: (lambda x: tirx.exp(x) * tirx.erf(tirx.exp(x)))(tirx.tanh(source[i]))
    )
    tanh = np.tanh(values.astype(np.float64))
    expected = np.exp(tanh) * np.vectorize(math.erf)(np.exp(tanh))
    np.testing.assert_allclose(evaluate(kernel, values), expected, rtol=3e-6)


def padded(source: Any, i: Any) -> Any:
    inside = repeated(tirx.tanh, 3)(source[i - 32])
    return tirx.exp(tirx.if_then_else(i >= 32, inside, tirx.const(0.0, "float32"))) + source[i]


def test_what_is_chosen_by_a_condition_is_read_where_it_holds() -> None:
    source = te.placeholder((_SIZE,), "float32", name="source")
    func = te.create_prim_func([source, te.compute((_SIZE,), lambda i: padded(source, i))])
    body = with_named_arguments(func, lambda call: call.op.name in ("tirx.exp", "tirx.tanh")).body
    choices = nodes_of(body, tirx.IfThenElse)
    assert [len(nodes_of(choice.then_case, tirx.BufferStore)) for choice in choices] == [3]
    assert len(loads(body)) == 2
    assert [len(loads(choice)) for choice in choices] == [1]


def loads(body: Any) -> list[Any]:
    return [load for load in nodes_of(body, tvm.ir.TensorLoad) if load.source.name == "source"]


@pytest.mark.parametrize("lanes", [0, 8])
def test_a_padded_argument(lanes: int) -> None:
    kernel = kernel_of(padded, lanes)
    values = np.linspace(-3, 3, _SIZE).astype(np.float32)
    inside = reduce(lambda x, _: np.tanh(x), range(3), values[:32].astype(np.float64))
    expected = np.exp(np.concatenate([np.zeros(32), inside])) + values
    np.testing.assert_allclose(evaluate(kernel, values), expected, rtol=3e-6)


def test_a_choice_whose_condition_has_functions() -> None:
    def element(source: Any, i: Any) -> Any:
        deep = repeated(tirx.tanh, 2)(source[i])
        return tirx.if_then_else(tirx.exp(deep) > 1, tirx.sin(deep), tirx.cos(tirx.exp(deep)))

    values = np.linspace(-3, 3, _SIZE).astype(np.float32)
    deep = np.tanh(np.tanh(values.astype(np.float64)))
    expected = np.where(np.exp(deep) > 1, np.sin(deep), np.cos(np.exp(deep)))
    np.testing.assert_allclose(evaluate(kernel_of(element, 0), values), expected, rtol=3e-6, atol=1e-6)
