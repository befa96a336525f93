"""Converters of our own for a few ONNX operators, where TVM's make slow kernels.

TVM turns ``Clip`` into kernels at once, and has no layout rule for its ``clip``. Either way the channels-last layout
stops there, and a network full of clipped activations (MobileNets) transposes back and forth around each of them.
Maximum and minimum with a constant of full rank let the layout through, and fuse with the convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

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
    return _between(bb, inputs[0], *bounds)


def convert_hard_sigmoid(bb: Any, inputs: Sequence[Any], attributes: dict[str, Any], _opset: int) -> Any:
    """Convert ``HardSigmoid``: ``max(0, min(1, alpha * x + beta))``."""
    return _hard_sigmoid(bb, inputs[0], attributes.get("alpha", 0.2), attributes.get("beta", 0.5))


def convert_hard_swish(bb: Any, inputs: Sequence[Any], _attributes: dict[str, Any], _opset: int) -> Any:
    """Convert ``HardSwish``: ``x * max(0, min(1, x / 6 + 0.5))``."""
    gate = _hard_sigmoid(bb, inputs[0], 1.0 / 6.0, 0.5)
    return None if gate is None else bb.emit(relax.op.multiply(inputs[0], gate))


CONVERTERS: dict[str, Converter] = {
    "Clip": convert_clip,
    "HardSigmoid": convert_hard_sigmoid,
    "HardSwish": convert_hard_swish,
}
"""Each returns None where it leaves the node to TVM's own converter."""


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


def _full_rank(x: Any, value: Any) -> Any:
    """Return a constant of x's dtype and rank with one element; None where the rank is unknown."""
    if not isinstance(x.ty, relax.TensorType) or x.ty.ndim < 0 or x.ty.dtype is None:
        return None
    return relax.const(np.full((1,) * x.ty.ndim, value, dtype=str(x.ty.dtype.dtype)))


def _constant(inputs: Sequence[Any], position: int) -> Any:
    given = _pair(inputs)[position - 1]
    if not isinstance(given, tvm.ir.GenericConst):
        return None
    value = given.value.numpy()
    return value.reshape(-1)[0] if value.size == 1 else None


def _pair(inputs: Sequence[Any]) -> list[Any]:
    """Return the second and third input; None for what is left out."""
    return [inputs[i] if len(inputs) > i else None for i in (1, 2)]
