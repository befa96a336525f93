"""Indices that depend on constants alone, kept within their tensors: TVM computes with them while it prepares a network, unchecked.

ONNX Runtime has checked the indices that it computed. TVM's may differ: a difference by rounding, multiplied, is any number.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main, static_shape, tensor_dtype

_ALONG_AXIS = frozenset({"relax.take", "relax.gather_elements", "relax.scatter_elements"})
_OF_POINTS = frozenset({"relax.gather_nd", "relax.scatter_nd"})
_FROM_END = "relax.scatter_elements"
"""The operator that takes negative indices; the importer has made the others' positive."""


def bound_constant_indices(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with the indices of gathers and scatters that depend on constants alone cut off at their tensors' ends."""
    return rewrite_main(mod, _IndexBounder(mod))


@relax.expr_functor.mutator
class _IndexBounder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._constants: set[Any] = set()

    def visit_var_binding_(self, binding: Any) -> None:
        if self._is_constant(binding.value):
            self._constants.add(binding.var)
        super().visit_var_binding_(binding)

    def visit_match_cast_(self, binding: Any) -> None:
        if self._is_constant(binding.value):
            self._constants.add(binding.var)
        super().visit_match_cast_(binding)

    def visit_call_(self, call: Any) -> Any:
        is_bounded = operator_name(call) in _ALONG_AXIS | _OF_POINTS and self._is_constant(call.args[1])
        rewritten = super().visit_call_(call)
        extents = _extents(rewritten) if is_bounded else None
        if extents is None:
            return rewritten
        data, indices, *others = rewritten.args
        lowest = -extents if operator_name(call) == _FROM_END else np.zeros_like(extents)
        bounded = self._bounded(indices, lowest, extents - 1)
        if bounded is indices:
            return rewritten
        return relax.Call(rewritten.op, [data, bounded, *others], rewritten.attrs)

    def _bounded(self, indices: Any, lowest: NDArray[Any], highest: NDArray[Any]) -> Any:
        dtype = tensor_dtype(indices)
        least, most = (
            np.clip(bound, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
            for bound in (lowest, highest)
        )
        if isinstance(indices, tvm.ir.GenericConst):
            values = np.asarray(indices.value.numpy())
            clipped = np.clip(values, least, most)
            return indices if np.array_equal(clipped, values) else relax.const(clipped, dtype)
        capped = self.builder_.emit(relax.op.minimum(indices, relax.const(most, dtype)))
        return self.builder_.emit(relax.op.maximum(capped, relax.const(least, dtype)))

    def _is_constant(self, expr: Any) -> bool:
        if isinstance(expr, relax.Var):
            return expr in self._constants
        if isinstance(expr, tvm.ir.Call):
            return all(self._is_constant(argument) for argument in expr.args)
        if isinstance(expr, relax.Tuple):
            return all(self._is_constant(field) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            return self._is_constant(expr.tuple_value)
        return not isinstance(expr, relax.If | relax.SeqExpr | relax.Function)


def _extents(call: Any) -> NDArray[Any] | None:
    """Return the sizes that the indices of a gather or scatter are of, which broadcast to the indices; None if they are not known."""
    shape, name = static_shape(call.args[0]), operator_name(call)
    if shape is None:
        return None
    if name in _OF_POINTS:
        points = static_shape(call.args[1])
        first = int(call.attrs.batch_dims) if name == "relax.gather_nd" else 0
        sizes = None if not points else shape[first : first + points[-1]]
        return None if sizes is None else np.array(sizes, np.int64)
    axis = call.attrs.axis
    return np.array(prod(shape) if axis is None else shape[int(axis)], np.int64)
