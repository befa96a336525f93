"""Converters of our own for a few ONNX operators, where TVM's make slow kernels.

TVM turns ``Clip`` into kernels at once, ``Max`` and ``Min`` into a stack and a reduction, and has layout rules neither for
its ``clip`` and ``leakyrelu`` nor for constants of a lower rank than the other side's. Each stops the channels-last
layout, and a network full of clipped activations (MobileNets) transposes back and forth around them. Maximum and
minimum with a constant of full rank let the layout through, and fuse with the convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.tvm.frontend.scope import const, dtype_of, full_rank

Converter = Callable[[Any, Sequence[Any], dict[str, Any], int], Any]


def convert_clip(bb: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """Convert ``Clip`` with constant bounds; None where TVM's converter has to do it."""
    if opset < 11:
        bounds = [attributes.get("min"), attributes.get("max")]
    else:
        bounds = [_constant(inputs, 1), _constant(inputs, 2)]
        if any(
            given is not None and bound is None for given, bound in zip(_pair(inputs), bounds, strict=True)
        ):
            return None  # a bound that is known at run time only
    if any(bound is not None and np.isnan(bound) for bound in bounds):
        return None
    return _between(bb, inputs[0], *_finite(inputs[0], bounds))


def convert_hard_sigmoid(bb: Any, inputs: Sequence[Any], attributes: dict[str, Any], _opset: int) -> Any:
    """Convert ``HardSigmoid``: ``max(0, min(1, alpha * x + beta))``."""
    return _hard_sigmoid(bb, inputs[0], attributes.get("alpha", 0.2), attributes.get("beta", 0.5))


def convert_hard_swish(bb: Any, inputs: Sequence[Any], _attributes: dict[str, Any], _opset: int) -> Any:
    """Convert ``HardSwish``: ``x * max(0, min(1, x / 6 + 0.5))``."""
    gate = _hard_sigmoid(bb, inputs[0], 1.0 / 6.0, 0.5)
    return None if gate is None else bb.emit(relax.op.multiply(inputs[0], gate))


def convert_leaky_relu(bb: Any, inputs: Sequence[Any], attributes: dict[str, Any], _opset: int) -> Any:
    """Convert ``LeakyRelu``: ``max(x, alpha * x)``, which holds for slopes up to one."""
    alpha = attributes.get("alpha", 0.01)
    if alpha == 0:
        return bb.emit(relax.op.nn.relu(inputs[0]))  # no infinity times zero
    slope = _full_rank(inputs[0], alpha)
    if slope is None or not 0 <= alpha <= 1:
        return None
    return bb.emit(relax.op.maximum(inputs[0], bb.emit(relax.op.multiply(inputs[0], slope))))


def convert_max(bb: Any, inputs: Sequence[Any], _attributes: dict[str, Any], _opset: int) -> Any:
    """Convert ``Max`` of any number of tensors, pair by pair."""
    return _pairwise(bb, inputs, relax.op.maximum)


def convert_min(bb: Any, inputs: Sequence[Any], _attributes: dict[str, Any], _opset: int) -> Any:
    """Convert ``Min`` likewise."""
    return _pairwise(bb, inputs, relax.op.minimum)


def widen_constants(inputs: Sequence[Any]) -> list[Any]:
    """Return an elementwise operator's inputs with constants of full rank, which broadcast just the same."""
    rank = max((one.ty.ndim for one in inputs if isinstance(one.ty, relax.TensorType)), default=-1)
    widened = []
    for one in inputs:
        if isinstance(one, tvm.ir.GenericConst) and 0 < one.ty.ndim < rank:
            value = one.value.numpy()
            one = const(value.reshape((1,) * (rank - value.ndim) + value.shape))
        widened.append(one)
    return widened


CONVERTERS: dict[str, Converter] = {
    "Clip": convert_clip,
    "HardSigmoid": convert_hard_sigmoid,
    "HardSwish": convert_hard_swish,
    "LeakyRelu": convert_leaky_relu,
    "Max": convert_max,
    "Min": convert_min,
}
"""Each returns None where it leaves the node to TVM's own converter."""

BROADCASTING = frozenset({"Add", "Div", "Mul", "Pow", "Sub"})
"""Operators whose constants are worth widening before TVM's own converter gets them."""


def _pairwise(bb: Any, inputs: Sequence[Any], op: Callable[[Any, Any], Any]) -> Any:
    if any(not isinstance(one.ty, relax.TensorType) or one.ty.ndim < 0 for one in inputs):
        return None
    if all(isinstance(one, tvm.ir.GenericConst) for one in inputs):
        return None  # TVM's own converter folds it at once, which shapes rely on
    first, *rest = widen_constants(inputs)
    for other in rest:
        first = bb.emit(op(first, other))
    return first


def _hard_sigmoid(bb: Any, x: Any, alpha: float, beta: float) -> Any:
    slope, offset = _full_rank(x, alpha), _full_rank(x, beta)
    if slope is None:
        return None
    return _between(bb, bb.emit(relax.op.add(bb.emit(relax.op.multiply(x, slope)), offset)), 0.0, 1.0)


def _between(bb: Any, x: Any, low: Any, high: Any) -> Any:
    """Emit ``min(max(x, low), high)``; a bound of None is none."""
    for bound, op in ((low, relax.op.maximum), (high, relax.op.minimum)):
        if bound is not None:
            limit = _full_rank(x, bound)
            if limit is None:
                return None
            x = bb.emit(op(x, limit))
    return x


def _finite(x: Any, bounds: Sequence[Any]) -> list[Any]:
    """Return the bounds of ``Clip`` with what ONNX means by one that is left out: the dtype's last finite number."""
    dtype = dtype_of(x)
    if not dtype.startswith("float") or all(bound is None for bound in bounds):
        return list(bounds)
    ends = np.finfo(dtype).min, np.finfo(dtype).max
    return [end if bound is None else bound for end, bound in zip(ends, bounds, strict=True)]


def _full_rank(x: Any, value: Any) -> Any:
    """Return a constant of x's dtype and rank with one element; None where the rank is unknown."""
    if not isinstance(x.ty, relax.TensorType) or x.ty.ndim < 0 or x.ty.dtype is None:
        return None
    return full_rank(value, x.ty.ndim, dtype_of(x))


def _constant(inputs: Sequence[Any], position: int) -> Any:
    given = _pair(inputs)[position - 1]
    if not isinstance(given, tvm.ir.GenericConst):
        return None
    value = given.value.numpy()
    return value.reshape(-1)[0] if value.size == 1 else None


def _pair(inputs: Sequence[Any]) -> list[Any]:
    """Return the second and third input; None for what is left out."""
    return [inputs[i] if len(inputs) > i else None for i in (1, 2)]
