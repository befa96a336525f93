"""Compute convolutions and matrix products by constant weights with bfloat16 dot products (ADR 0058).

Activations are rounded once, where they are computed: rounding is the last element-wise step of a kernel, because fusion puts it there. If
only products and element-wise steps read a tensor, it is stored as bfloat16 alone, and the element-wise steps widen it again. So do
depthwise convolutions, which have too few products for the instruction, but read half as much.
Everything else is float32: sums, element-wise steps, normalisations, reductions, and products that are too small to gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

import tvm
from tvm import relax, topi

from tunefarm_tuning.tvm.base.relax_graph import (
    entry_names,
    operator_name,
    rewrite_main,
    static_shape,
    tensor_dtype,
)
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.kernels.bfloat16_kernels import bfloat16_conv2d, bfloat16_matmul
from tunefarm_tuning.tvm.kernels.dot_products import BFLOAT16, Runs, packed, runs_of
from tunefarm_tuning.tvm.kernels.narrow_depthwise import narrow_depthwise_conv2d
from tunefarm_tuning.tvm.transform.convolution import geometry, is_depthwise
from tunefarm_tuning.tvm.transform.weights.formats import store
from tunefarm_tuning.workload.precision import Precision

_NARROW, _WIDE = "bfloat16", "float32"
_MOVES = {"relax.reshape", "relax.permute_dims"}
_MIN_PRODUCTS = 16
"""A sum of fewer products takes no longer than the rounding of its activations."""
_MIN_RESULTS = 8
"""Fewer results leave more than half of a vector empty."""
_MIN_CHANNELS = 3
"""A convolution of fewer channels leaves half of each pair of factors empty, or has no sum over channels."""
_ELEMENT_WISE = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "negative", "abs", "sqrt"),
        *("exp", "tanh", "sigmoid", "erf", "clip", "where", "square", "rsqrt"),
        *("nn.relu", "nn.leakyrelu", "nn.prelu", "nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.softplus"),
    )
)
"""Operators into whose kernels a widening of their operands fuses."""


def multiply_bfloat16(mod: tvm.IRModule, lanes: int) -> tvm.IRModule:
    """Return the module with 2-D convolutions (channels last, ungrouped) and products by a matrix computed in bfloat16.

    Depthwise convolutions compute in float32, and read bfloat16.

    Args:
        mod: Its constants are folded.
        lanes: Sums of the target's instruction (`target.dot_products.bfloat16_lanes`).
    """
    rewritten = rewrite_main(mod, _Bfloat16ProductRewriter(mod, lanes))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(rewritten)
    return result


class NarrowProductRewriter(relax.PyExprMutator):  # type: ignore[misc]
    """Rounds activations to a dtype of 16 bits where products, which a subclass makes, and element-wise steps alone read them."""

    narrow = _NARROW

    def __init__(self, mod: tvm.IRModule, lanes: int) -> None:
        super().__init__(mod)
        self._lanes = lanes
        # By the address of the constant, which is kept alive here. None: bfloat16 cannot represent it.
        self._weights: dict[tuple[int, bool], tuple[Any, Any]] = {}
        self._rounded: dict[Any, Any] = {}  # new variables, by the variable that they round
        self._values: dict[Any, Any] = {}
        self._only_rounded: set[Any] = set()
        self._for_depthwise: set[Any] = set()
        for name in entry_names(mod):
            self._look_at(mod[name])

    def visit_dataflow_block_(self, block: Any) -> Any:
        return self._apart(super().visit_dataflow_block_, block)

    def visit_if_(self, branches: Any) -> Any:
        return self._apart(super().visit_if_, branches)

    def visit_call_(self, call: Any) -> Any:
        kernel = self._kernel_of(call)
        if kernel is None:
            return super().visit_call_(self._with_widened_operands(call))
        data, weight = self._moved(call.args[0]), call.args[1]
        if is_depthwise(call):
            return self.builder_.call_te(
                kernel, data, weight, primfunc_name_hint="depthwise_conv2d_of_bfloat16"
            )
        if (runs := _runs(call)) is not None:
            batch, height, width, channels = (int(size) for size in call.args[0].ty.shape)
            data = self.builder_.emit(relax.op.reshape(data, [batch, height, width * channels]))
            kernel = partial(kernel, runs=runs)
        return self.builder_.call_te(
            kernel,
            data,
            self._packed(weight, in_runs=runs is not None),
            primfunc_name_hint="bfloat16_conv2d" if len(weight.ty.shape) == 4 else "bfloat16_matmul",
        )

    def _apart(self, visit: Callable[[Any], Any], scope: Any) -> Any:
        """Visit a scope whose variables are unknown outside of it."""
        self._rounded = {}
        visited = visit(scope)
        self._rounded = {}
        return visited

    def _kernel_of(self, call: Any) -> Callable[..., Any] | None:
        """Return the kernel that computes a call in bfloat16; None if there is none, or float32 is as fast."""
        rank = {"relax.matmul": 2, "relax.nn.conv2d": 4}.get(operator_name(call))
        if rank is None or tensor_dtype(call) != _WIDE:
            return None
        data, weight = call.args
        shapes = (static_shape(call), static_shape(data), static_shape(weight))
        if any(shape is None or 0 in shape for shape in shapes):
            return None
        if not isinstance(weight, tvm.ir.GenericConst) or tensor_dtype(data) != _WIDE:
            return None
        if is_depthwise(call):
            kernel_ = partial(narrow_depthwise_conv2d, zero=0, **geometry(call))
            return kernel_ if data in self._for_depthwise else None
        *kernel, depth, results = (int(size) for size in weight.ty.shape)
        if len(kernel) + 2 != rank or prod(kernel) * depth < _MIN_PRODUCTS or results < _MIN_RESULTS:
            return None
        if rank == 4:
            product = _convolution(call) if depth >= _MIN_CHANNELS else None
        else:
            product = partial(bfloat16_matmul, channels=results) if len(data.ty.shape) > 1 else None
        if product is None or self._packed(weight, in_runs=_runs(call) is not None) is None:
            return None
        return product

    def _packed(self, weight: Any, *, in_runs: bool) -> Any:
        """Return weights as bfloat16, packed, their columns one behind the other `in_runs`; None if it cannot represent them."""
        address = (weight.value.__chandle__(), in_runs)
        if address not in self._weights:
            value = weight.value.numpy()
            stored = store(value, Precision.BFLOAT16_WEIGHTS, {value.ndim - 1})
            constant = None
            if stored is not None:
                array = stored.arrays[0]
                array = array.reshape(array.shape[0], 1, -1, array.shape[-1]) if in_runs else array
                constant = relax.const(packed(array, self._lanes, BFLOAT16.products), _NARROW)
            self._weights[address] = (weight, constant)
        return self._weights[address][1]

    def _moved(self, value: Any) -> Any:
        """Return activations as bfloat16, rounded before they are moved: the rounding then fuses with what computes them."""
        bound = self._values.get(value)
        if bound is None or operator_name(bound) not in _MOVES or value in self._only_rounded:
            return self._narrow(value)
        moved = tvm.ir.Call(bound.op, [self._moved(bound.args[0]), *bound.args[1:]], bound.attrs)
        return self.builder_.emit(self.builder_.normalize(moved))

    def _narrow(self, value: Any) -> Any:
        if value not in self._rounded:
            rounded = self.builder_.call_te(
                _cast(self.narrow), self.visit_expr(value), primfunc_name_hint="round"
            )
            self._rounded[value] = self.builder_.emit(rounded)
        return self._rounded[value]

    def _with_widened_operands(self, call: Any) -> Any:
        """Return a call that reads the tensors of `_only_rounded` as they are stored."""
        if operator_name(call) not in _ELEMENT_WISE or not any(
            arg in self._only_rounded for arg in call.args
        ):
            return call
        operands = [
            self.builder_.emit(
                self.builder_.call_te(_cast(_WIDE), self._narrow(arg), primfunc_name_hint="widen")
            )
            if arg in self._only_rounded
            else arg
            for arg in call.args
        ]
        return tvm.ir.Call(call.op, operands, call.attrs)

    def _look_at(self, func: Any) -> None:
        """Find out which tensors both products and element-wise steps read, and nothing else."""
        bindings = [binding for block in func.body.blocks for binding in block.bindings]
        for binding in bindings:
            if isinstance(binding, relax.VarBinding):
                self._values[binding.var] = binding.value
        others = set(_variables(func.body.body))
        self._look_at_depthwise(bindings, others)
        element_wise: set[Any] = set()
        products: set[Any] = set()
        for binding in reversed(bindings):
            if not isinstance(binding, relax.VarBinding):
                others.update(_variables(binding.value))
                continue
            call, is_read = binding.value, binding.var in products | element_wise | others
            name = operator_name(call)
            if self._kernel_of(call) is not None:
                products.add(call.args[0])
            elif name in _ELEMENT_WISE:
                element_wise.update(_variables(call))
            elif name in _MOVES and is_read and binding.var not in element_wise | others:
                products.add(call.args[0])
            else:
                others.update(_variables(call))
        self._only_rounded |= {
            variable
            for variable in products & element_wise - others
            if operator_name(self._values.get(variable))
        }

    def _look_at_depthwise(self, bindings: Sequence[Any], outputs: set[Any]) -> None:
        """Find out which tensors depthwise convolutions read as bfloat16: those that a step computes that can round them, for no others."""
        readers: dict[Any, list[Any]] = {}
        for binding in bindings:
            for variable in _variables(binding.value if isinstance(binding, relax.VarBinding) else binding):
                readers.setdefault(variable, []).append(getattr(binding, "value", None))
        for variable, calls in readers.items():
            made_by = operator_name(self._values.get(variable))
            if variable in outputs or made_by not in _ELEMENT_WISE | {"relax.nn.conv2d"}:
                continue
            if any(map(is_depthwise, calls)) and all(
                is_depthwise(call)
                or operator_name(call) in _ELEMENT_WISE
                or self._kernel_of(call) is not None
                for call in calls
            ):
                self._for_depthwise.add(variable)


@relax.expr_functor.mutator
class _Bfloat16ProductRewriter(NarrowProductRewriter):
    pass


def _convolution(call: Any) -> Callable[..., Any] | None:
    attributes = call.attrs
    layouts = (attributes.data_layout, attributes.kernel_layout, attributes.out_layout)
    if layouts != ("NHWC", "HWIO", "NHWC") or int(attributes.groups) != 1:
        return None
    return partial(bfloat16_conv2d, channels=int(call.args[1].ty.shape[-1]), **geometry(call))


def _runs(call: Any) -> Runs | None:
    """Return the runs of a convolution; None for a matrix product, or where columns are computed one by one."""
    if operator_name(call) != "relax.nn.conv2d":
        return None
    _, columns, channels, _ = (int(size) for size in call.args[1].ty.shape)
    return runs_of(channels, columns, int(call.attrs.dilation[1]), BFLOAT16.products)


def _cast(dtype: str) -> Callable[[Any], Any]:
    return lambda x: topi.cast(x, dtype)


def _variables(expr: Any) -> Iterator[Any]:
    return (node for node in walk(expr) if isinstance(node, relax.Var))
