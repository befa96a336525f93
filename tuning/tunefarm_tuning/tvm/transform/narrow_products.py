"""Round activations to 16 bits for the products that are computed in them.

Activations are rounded once, where they are computed: rounding is the last element-wise step of a kernel, because fusion puts it there. If
only products and element-wise steps read a tensor, it is stored in 16 bits alone, and the element-wise steps widen it again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import tvm
from tvm import relax, topi

from tunefarm_tuning.tvm.base.relax_graph import entry_names, operator_name, static_shape, tensor_dtype
from tunefarm_tuning.tvm.base.tir import walk

_WIDE = "float32"
_MOVES = {"relax.reshape", "relax.permute_dims"}
ELEMENT_WISE = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "negative", "abs", "sqrt"),
        *("exp", "tanh", "sigmoid", "erf", "clip", "where", "square", "rsqrt"),
        *("nn.relu", "nn.leakyrelu", "nn.prelu", "nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.softplus"),
    )
)
"""Operators into whose kernels a widening of their operands fuses."""


class NarrowProductRewriter(relax.PyExprMutator):  # type: ignore[misc]
    """Rounds activations to a dtype of 16 bits where products, which a subclass makes, and element-wise steps alone read them.

    Attributes:
        dtype: The dtype.
    """

    dtype: ClassVar[str]

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._rounded: dict[Any, Any] = {}  # new variables, by the variable that they round
        self._values: dict[Any, Any] = {}
        self._only_rounded: set[Any] = set()
        for name in entry_names(mod):
            self._look_at(mod[name])

    @abstractmethod
    def product_of(self, call: Any) -> Callable[[Any, Any], Any] | None:
        """Return what makes a call's product of a builder and the activations in 16 bits; None if float32 is as fast, or there is nothing."""

    def look_at_values(self, bindings: Sequence[Any], values: Mapping[Any, Any], outputs: set[Any]) -> None:
        """Learn which tensors a function has, before its products are looked for.

        Args:
            bindings: The function's bindings.
            values: What its variables are bound to.
            outputs: The variables that it returns.
        """

    def visit_dataflow_block_(self, block: Any) -> Any:
        return self._apart(super().visit_dataflow_block_, block)

    def visit_if_(self, branches: Any) -> Any:
        return self._apart(super().visit_if_, branches)

    def visit_call_(self, call: Any) -> Any:
        product = self.product_of(call)
        if product is None:
            return super().visit_call_(self._with_widened_operands(call))
        return product(self.builder_, self._moved(call.args[0]))

    def _apart(self, visit: Callable[[Any], Any], scope: Any) -> Any:
        """Visit a scope whose variables are unknown outside of it."""
        self._rounded = {}
        visited = visit(scope)
        self._rounded = {}
        return visited

    def _moved(self, value: Any) -> Any:
        """Return activations in 16 bits, rounded before they are moved: the rounding then fuses with what computes them."""
        if tensor_dtype(value) == self.dtype:
            return self.visit_expr(value)
        bound = self._values.get(value)
        if bound is None or operator_name(bound) not in _MOVES or value in self._only_rounded:
            return self._in_16_bits(value)
        moved = tvm.ir.Call(bound.op, [self._moved(bound.args[0]), *bound.args[1:]], bound.attrs)
        return self.builder_.emit(self.builder_.normalize(moved))

    def _in_16_bits(self, value: Any) -> Any:
        if value not in self._rounded:
            rounded = self.builder_.call_te(
                _cast(self.dtype), self.visit_expr(value), primfunc_name_hint="round"
            )
            self._rounded[value] = self.builder_.emit(rounded)
        return self._rounded[value]

    def _with_widened_operands(self, call: Any) -> Any:
        """Return a call that reads the tensors of `_only_rounded` as they are stored."""
        if operator_name(call) not in ELEMENT_WISE or not any(arg in self._only_rounded for arg in call.args):
            return call
        operands = [
            self.builder_.emit(
                self.builder_.call_te(_cast(_WIDE), self._in_16_bits(arg), primfunc_name_hint="widen")
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
        others = set(variables_of(func.body.body))
        self.look_at_values(bindings, self._values, others)
        element_wise: set[Any] = set()
        products: set[Any] = set()
        for binding in reversed(bindings):
            if not isinstance(binding, relax.VarBinding):
                others.update(variables_of(binding.value))
                continue
            call, is_read = binding.value, binding.var in products | element_wise | others
            name = operator_name(call)
            if self.product_of(call) is not None:
                products.add(call.args[0])
            elif name in ELEMENT_WISE:
                element_wise.update(variables_of(call))
            elif name in _MOVES and is_read and binding.var not in element_wise | others:
                products.add(call.args[0])
            else:
                others.update(variables_of(call))
        self._only_rounded |= {
            variable
            for variable in products & element_wise - others
            if operator_name(self._values.get(variable)) and tensor_dtype(variable) == _WIDE
        }


def weights_rank(call: Any) -> int | None:
    """Return the rank of the constant weights of a float32 product of static shapes; None for any other call."""
    rank = {"relax.matmul": 2, "relax.nn.conv2d": 4}.get(operator_name(call))
    if rank is None or tensor_dtype(call) != _WIDE:
        return None
    data, weight = call.args
    shapes = (static_shape(call), static_shape(data), static_shape(weight))
    if any(shape is None or 0 in shape for shape in shapes):
        return None
    return rank if isinstance(weight, tvm.ir.GenericConst) and len(weight.ty.shape) == rank else None


def variables_of(expr: Any) -> Iterator[Any]:
    """Return the variables that an expression reads."""
    return (node for node in walk(expr) if isinstance(node, relax.Var))


def _cast(dtype: str) -> Callable[[Any], Any]:
    return lambda x: topi.cast(x, dtype)
