"""Operators as older opsets write them, turned into the form that TVM's importer knows.

For an opset below all that it knows of an operator, TVM's importer takes the lowest that it has, whatever the node
says: `Slice` with its ends as attributes, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tunefarm_tuning.tvm.frontend.scope import Scope, const, needed_shape

_SINCE_AXES_ARE_INPUTS = 13


def convert_slice(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Slice` of opset 1, whose bounds are attributes; None for others."""
    if scope.opset >= 10:
        return None
    starts, ends = list(attributes["starts"]), list(attributes["ends"])
    axes = list(attributes.get("axes", range(len(starts))))
    rest = [_ints(one) for one in (starts, ends, axes)]
    return scope.convert("Slice", [inputs[0], *rest], {}, _SINCE_AXES_ARE_INPUTS)


def convert_top_k(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `TopK` of opset 10, which TVM reads as opset 1's, and unsorted ones: any order is right, a sorted one too."""
    if scope.opset < 10 or (scope.opset > 10 and attributes.get("sorted", 1) == 1):
        return None
    return scope.convert("TopK", inputs, {**attributes, "sorted": 1}, 11)


def convert_squeeze(scope: Scope, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `Squeeze` with axes counted from the end: TVM's importer computes a shape of negative size with them."""
    axes = attributes.get("axes")
    if scope.opset >= _SINCE_AXES_ARE_INPUTS:
        given = inputs[1] if len(inputs) > 1 else None
        value = getattr(given, "value", None)
        axes = None if value is None else value.numpy().reshape(-1).tolist()
    if axes is None or all(int(axis) >= 0 for axis in axes):
        return None
    rank = len(needed_shape(inputs[0]))
    wanted = _ints([int(axis) % rank for axis in axes])
    return scope.convert("Squeeze", [inputs[0], wanted], {}, _SINCE_AXES_ARE_INPUTS)


def _ints(values: Sequence[int]) -> Any:
    return const(np.array(values, dtype=np.int64))


CONVERTERS: dict[str, Callable[[Scope, Sequence[Any], dict[str, Any]], Any]] = {
    "Slice": convert_slice,
    "Squeeze": convert_squeeze,
    "TopK": convert_top_k,
}
"""Each returns None where TVM's own converter reads the node rightly."""
