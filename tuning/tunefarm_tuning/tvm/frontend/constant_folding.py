"""Constant folding in the importer: mostly the arithmetic that exporters do with shapes.

TVM's importer folds some of it and leaves the other nodes to the run, where the shapes are then unknown. Only small tensors are folded
here: weights are folded by the graph passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from tvm import relax

from tunefarm_tuning.frontend.onnx.node_folding import fold_node, is_folded
from tunefarm_tuning.tvm.frontend.node_context import const, constant_value


def fold(operator: str, inputs: Sequence[Any], attributes: dict[str, Any], opset: int, outputs: int) -> Any:
    """Return the value of a node of constants, itself a constant or a tuple of them; None if it is computed at run time."""
    if not is_folded(operator) or not inputs:
        return None
    values = [constant_value(x) for x in inputs]
    if any(value is None and x is not None for value, x in zip(values, inputs, strict=True)):
        return None
    own_attributes = {name: value for name, value in attributes.items() if name != "tvm_custom"}
    results = [f"o{number}" for number in range(outputs)]
    node = onnx.helper.make_node(operator, [], results, **own_attributes)
    computed = fold_node(node, values, opset)
    if computed is None:
        return None
    constants = [const(value) for value in computed]
    return constants[0] if len(constants) == 1 else relax.Tuple(constants)
