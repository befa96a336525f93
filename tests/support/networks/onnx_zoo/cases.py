"""The list of networks, and how they are built for an opset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx_models import GraphBuilder

OPSETS = range(7, 24)

Case = Callable[[GraphBuilder, int], Any]
_CASES: dict[str, tuple[range, tuple[int, ...], Case]] = {}


def case(since: int = 7, until: int = 23, changed: tuple[int, ...] = ()) -> Callable[[Case], Case]:
    """Add a network.

    It returns its outputs: names, or pairs of a name and a dtype where that is not float32.

    Args:
        since: The first opset that has it.
        until: The last one.
        changed: Opsets in which the same nodes came to mean something else.
    """

    def add(build: Case) -> Case:
        _CASES[build.__name__] = (range(since, until + 1), changed, build)
        return build

    return add


def names() -> list[str]:
    return list(_CASES)


def opsets(name: str) -> range:
    return _CASES[name][0]


def ways_of_writing(name: str) -> list[int]:
    """Return one opset for each way in which a network is written: the first of each."""
    seen: dict[bytes, int] = {}
    for opset in opsets(name):
        graph = build(name, opset).graph
        del graph.input[:]
        seen.setdefault(graph.SerializeToString(deterministic=True), opset)
    return sorted({*seen.values(), *_CASES[name][1]})


def build(name: str, opset: int) -> onnx.ModelProto:
    g = GraphBuilder(seed=7)
    outputs = _CASES[name][2](g, opset)
    for tensor in outputs if isinstance(outputs, list) else [outputs]:
        if isinstance(tensor, tuple):
            g.output(tensor[0], None, tensor[1])
        else:
            g.output(tensor)
    model = g.model(opset)
    if opset < 9:  # weights were listed as inputs then
        listed = [helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in model.graph.initializer]
        model.graph.input.extend(listed)
    model.ir_version = helper.find_min_ir_version_for(list(model.opset_import)[:1])
    return model


def image(g: GraphBuilder, *shape: int) -> str:
    """Add the input ``x``."""
    return g.input("x", shape or (1, 4, 6, 8), TensorProto.FLOAT)


def axes_node(
    g: GraphBuilder, x: str, operator: str, axes: Sequence[int], moved: int, v: int, **attributes: Any
) -> Any:
    """Add a node whose axes are an attribute before an opset, and an input from then on."""
    if v < moved:
        return g.node(operator, x, axes=list(axes), **attributes)
    return g.node(operator, x, g.ints(*axes), **attributes)


def scalar(g: GraphBuilder, value: Any, dtype: Any = np.float32) -> str:
    return g.constant(np.array(value, dtype))
