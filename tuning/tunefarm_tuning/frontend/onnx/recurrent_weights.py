"""Compute the weights of recurrent layers that a graph makes of other constants: exporters reorder gates, or dequantise.

The compiler's kernels of these layers need constants, and its own passes, which fold constants, come after the import.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, numpy_helper

from tunefarm_tuning.frontend.onnx.node_folding import fold_node

_LAYERS = frozenset({"LSTM", "GRU", "RNN"})
_WEIGHTS = slice(1, 4)
"""The positions of weights, recurrent weights and bias among the inputs."""
_ALSO_FOLDED = frozenset({"DequantizeLinear"})
_MAX_ELEMENTS = 1 << 26


def fold_recurrent_weights(model: onnx.ModelProto) -> None:
    """Replace computed weights of recurrent layers by constants, in place, if they depend on nothing else."""
    graph = model.graph
    layers = [node for node in graph.node if node.op_type in _LAYERS and node.domain in ("", "ai.onnx")]
    constants = {tensor.name: tensor for tensor in graph.initializer}
    computed = [name for node in layers for name in node.input[_WEIGHTS] if name and name not in constants]
    if not computed:
        return
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    folded_tensors = _folded(graph, set(computed), constants, opset)
    graph.initializer.extend(
        folded_tensors[name] for name in dict.fromkeys(computed) if name in folded_tensors
    )
    gone = set(computed) & set(folded_tensors)
    for node in list(graph.node):
        if node.op_type not in _LAYERS and gone.issuperset(node.output):
            graph.node.remove(node)
    _drop_unused(graph)


def _folded(
    graph: onnx.GraphProto, wanted: set[str], constants: dict[str, TensorProto], opset: int
) -> dict[str, TensorProto]:
    """Return the values of tensors, and of those on the way to them, as far as they depend on constants alone."""
    needed = set(wanted)
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
    folded_tensors: dict[str, TensorProto] = {}
    for node in graph.node:
        if not needed.intersection(node.output):
            continue
        sources = [folded_tensors.get(name) or constants.get(name) for name in node.input]
        if any(name and tensor is None for name, tensor in zip(node.input, sources, strict=True)):
            continue
        values = [None if tensor is None else numpy_helper.to_array(tensor) for tensor in sources]
        folded = fold_node(node, values, opset, max_elements=_MAX_ELEMENTS, besides=_ALSO_FOLDED)
        for output, value in zip(node.output, folded or (), strict=False):
            folded_tensors[output] = numpy_helper.from_array(value, output)
    return folded_tensors


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and constants that no output needs any more."""
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    tensors = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(reversed(kept))
    graph.initializer.extend(tensors)
