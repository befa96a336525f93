"""Activations of ours: TVM's importer makes them for float32 alone, or loses infinities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from tunefarm_tuning.tvm.frontend.scope import Scope, dtype_of, full_rank, needed_shape

_SELU = {"alpha": 1.6732632, "gamma": 1.0507009}


def convert_elu(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Elu`: ``x`` where that is positive, else ``alpha * (exp(x) - 1)``."""
    return _elu(scope, inputs[0], attributes.get("alpha", 1.0), 1.0)


def convert_selu(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Selu`: the same, times ``gamma``."""
    given = {**_SELU, **attributes}
    return _elu(scope, inputs[0], given["alpha"] * given["gamma"], given["gamma"])


def convert_thresholded_relu(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `ThresholdedRelu`; TVM multiplies with a zero, which makes NaN of an infinity."""
    x = inputs[0]
    above = scope.emit(relax.op.greater(x, _number(x, attributes.get("alpha", 1.0))))
    return relax.op.where(above, x, _number(x, 0.0))


def _elu(scope: Scope, x: Any, below: float, above: float) -> Any:
    """Return ``above * max(x, 0) - below * max(1 - exp(x), 0)``."""
    rest = scope.emit(relax.op.subtract(_number(x, 1.0), scope.emit(relax.op.exp(x))))
    negative = scope.emit(relax.op.multiply(scope.emit(relax.op.nn.relu(rest)), _number(x, -below)))
    positive = scope.emit(relax.op.nn.relu(x))
    if above != 1:
        positive = scope.emit(relax.op.multiply(positive, _number(x, above)))
    return relax.op.add(negative, positive)


def _number(x: Any, value: float) -> Any:
    return full_rank(value, len(needed_shape(x)), dtype_of(x))


CONVERTERS: dict[str, Callable[[Scope, Sequence[Any], dict[str, Any]], Any]] = {
    "Elu": convert_elu,
    "Selu": convert_selu,
    "ThresholdedRelu": convert_thresholded_relu,
}
