"""Converters of element-wise operators and reductions: activations, bounds, powers.

TVM turns ``Clip`` into kernels at once, ``Max`` and ``Min`` into a stack and a reduction, and has layout rules neither for its ``clip``
and ``leakyrelu`` nor for constants of a lower rank than the other operand. Each of these stops the channels-last layout, and a
network full of clipped activations (MobileNets) transposes back and forth around them. Maximum and minimum with a constant of full
rank let the layout through, and fuse with the convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    const,
    dtype_of,
    full_rank,
    needed_shape,
    rank_of,
)

_SELU = {"alpha": 1.6732632, "gamma": 1.0507009}


def convert_clip(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Clip` with constant bounds."""
    if context.opset < 11:
        bounds = [attributes.get("min"), attributes.get("max")]
    else:
        bounds = [_constant(inputs, 1), _constant(inputs, 2)]
        if any(
            operand is not None and bound is None
            for operand, bound in zip(_pair(inputs), bounds, strict=True)
        ):
            return None  # a bound that is known at run time only
    if any(bound is not None and np.isnan(bound) for bound in bounds):
        return None
    return _between(context, inputs[0], *_finite(inputs[0], bounds))


def convert_elu(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Elu`: ``x`` if positive, else ``alpha * (exp(x) - 1)``. TVM's converter supports float32 alone."""
    return _elu(context, inputs[0], attributes.get("alpha", 1.0), 1.0)


def convert_hard_sigmoid(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `HardSigmoid`: ``max(0, min(1, alpha * x + beta))``."""
    return _hard_sigmoid(context, inputs[0], attributes.get("alpha", 0.2), attributes.get("beta", 0.5))


def convert_hard_swish(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `HardSwish`: ``x * max(0, min(1, x / 6 + 0.5))``."""
    gate = _hard_sigmoid(context, inputs[0], 1.0 / 6.0, 0.5)
    return None if gate is None else context.emit(relax.op.multiply(inputs[0], gate))


def convert_is_inf(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `IsInf` of one sign; TVM's converter ignores its attributes."""
    x = inputs[0]
    signs = [
        sign
        for sign, name in ((np.inf, "detect_positive"), (-np.inf, "detect_negative"))
        if attributes.get(name, 1)
    ]
    if len(signs) == 2:
        return None
    rank = rank_of(x)
    if not signs:
        return const(np.zeros(needed_shape(x), dtype=bool))
    return context.emit(relax.op.equal(x, full_rank(signs[0], rank, dtype_of(x))))


def convert_leaky_relu(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `LeakyRelu`: ``max(x, alpha * x)``, which holds for slopes up to one."""
    alpha = attributes.get("alpha", 0.01)
    if alpha == 0:
        return context.emit(relax.op.nn.relu(inputs[0]))  # no infinity times zero
    slope = _full_rank(inputs[0], alpha)
    if slope is None or not 0 <= alpha <= 1:
        return None
    return context.emit(relax.op.maximum(inputs[0], context.emit(relax.op.multiply(inputs[0], slope))))


def convert_max(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Max` of any number of tensors, pair by pair."""
    return _pairwise(context, inputs, relax.op.maximum)


def convert_min(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Min` of any number of tensors, pair by pair."""
    return _pairwise(context, inputs, relax.op.minimum)


def convert_sum(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Sum` of any number of tensors, pair by pair: TVM stacks them first."""
    return _pairwise(context, inputs, relax.op.add)


def convert_pow(context: NodeContext, inputs: Sequence[Any], _attributes: dict[str, Any]) -> Any:
    """Convert `Pow` of two dtypes or of integers, for which TVM has no kernel."""
    base, exponent = inputs
    dtype = dtype_of(base)
    if dtype == dtype_of(exponent) and dtype.startswith("float"):
        return None
    if dtype.startswith("float"):
        return context.node("Pow", base, context.emit(relax.op.astype(exponent, dtype)))
    wide = [context.emit(relax.op.astype(operand, "float64")) for operand in (base, exponent)]
    return relax.op.astype(context.node("Pow", *wide), dtype)


def convert_selu(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Selu`: an `Elu` times ``gamma``."""
    attrs = {**_SELU, **attributes}
    return _elu(context, inputs[0], attrs["alpha"] * attrs["gamma"], attrs["gamma"])


def convert_thresholded_relu(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ThresholdedRelu`; TVM's converter multiplies infinity by zero, which gives NaN."""
    x = inputs[0]
    above = context.emit(relax.op.greater(x, _number(x, attributes.get("alpha", 1.0))))
    return relax.op.where(above, x, _number(x, 0.0))


BROADCASTING = frozenset({"Add", "Div", "Mul", "Pow", "Sub"})
"""Operators whose constants get the full rank before TVM's converter sees them."""


def widen_constants(inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of an element-wise operator with constants reshaped to full rank; they broadcast in the same way."""
    rank = max((x.ty.ndim for x in inputs if isinstance(x.ty, relax.TensorType)), default=-1)
    widened = []
    for x in inputs:
        if isinstance(x, tvm.ir.GenericConst) and 0 < x.ty.ndim < rank:
            value = x.value.numpy()
            x = const(value.reshape((1,) * (rank - value.ndim) + value.shape))
        widened.append(x)
    return widened


def _pairwise(context: NodeContext, inputs: Sequence[Any], op: Callable[[Any, Any], Any]) -> Any:
    if any(not isinstance(x.ty, relax.TensorType) or x.ty.ndim < 0 for x in inputs):
        return None
    if all(isinstance(x, tvm.ir.GenericConst) for x in inputs):
        return None  # TVM's converter folds it at once, which shapes rely on
    result, *others = widen_constants(inputs)
    for other in others:
        result = context.emit(op(result, other))
    return result


def _elu(context: NodeContext, x: Any, below: float, above: float) -> Any:
    """Return ``above * max(x, 0) - below * max(1 - exp(x), 0)``."""
    difference = context.emit(relax.op.subtract(_number(x, 1.0), context.emit(relax.op.exp(x))))
    negative = context.emit(relax.op.multiply(context.emit(relax.op.nn.relu(difference)), _number(x, -below)))
    positive = context.emit(relax.op.nn.relu(x))
    if above != 1:
        positive = context.emit(relax.op.multiply(positive, _number(x, above)))
    return relax.op.add(negative, positive)


def _number(x: Any, value: float) -> Any:
    return full_rank(value, rank_of(x), dtype_of(x))


def _hard_sigmoid(context: NodeContext, x: Any, alpha: float, beta: float) -> Any:
    slope, offset = _full_rank(x, alpha), _full_rank(x, beta)
    if slope is None:
        return None
    line = context.emit(relax.op.add(context.emit(relax.op.multiply(x, slope)), offset))
    return _between(context, line, 0.0, 1.0)


def _between(context: NodeContext, x: Any, low: Any, high: Any) -> Any:
    """Emit ``min(max(x, low), high)``; None stands for no bound. Return None if the rank of x is unknown."""
    for bound, op in ((low, relax.op.maximum), (high, relax.op.minimum)):
        if bound is not None:
            limit = _full_rank(x, bound)
            if limit is None:
                return None
            x = context.emit(op(x, limit))
    return x


def _finite(x: Any, bounds: Sequence[Any]) -> list[Any]:
    """Return the bounds of `Clip`; an omitted bound is the last finite number of the dtype, as ONNX defines it."""
    dtype = dtype_of(x)
    if not dtype.startswith("float") or all(bound is None for bound in bounds):
        return list(bounds)
    limits = np.finfo(dtype).min, np.finfo(dtype).max
    return [limit if bound is None else bound for limit, bound in zip(limits, bounds, strict=True)]


def _full_rank(x: Any, value: Any) -> Any:
    """Return a constant of one element with the dtype and rank of x; None if the rank is unknown."""
    if not isinstance(x.ty, relax.TensorType) or x.ty.ndim < 0 or x.ty.dtype is None:
        return None
    return full_rank(value, x.ty.ndim, dtype_of(x))


def _constant(inputs: Sequence[Any], position: int) -> Any:
    """Return the second (1) or third (2) input as a number; None if it is no constant of one element."""
    operand = _pair(inputs)[position - 1]
    if not isinstance(operand, tvm.ir.GenericConst):
        return None
    value = operand.value.numpy()
    return value.reshape(-1)[0] if value.size == 1 else None


def _pair(inputs: Sequence[Any]) -> list[Any]:
    """Return the second and third input; None for an omitted one."""
    return [inputs[i] if len(inputs) > i else None for i in (1, 2)]
