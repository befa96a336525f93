"""Replace computed sizes in the reshapes of a converted network, so that `torch.compile` can trace them.

`onnx2torch` 1.5 keeps an ONNX `Reshape`'s sizes in a tensor, which `torch.compile` cannot follow. Only where PyTorch is installed.
"""

from __future__ import annotations

import torch
from onnx2torch.node_converters.reshape import OnnxReshape
from torch import fx


def with_known_shapes(network: fx.GraphModule) -> fx.GraphModule:
    """Replace reshapes whose sizes are constants, none of them ONNX's 0; the network itself is changed."""
    for node in list(network.graph.nodes):
        if node.op != "call_module" or not isinstance(network.get_submodule(node.target), OnnxReshape):
            continue
        data, sizes = node.args
        if sizes.op != "get_attr":
            continue
        known = [int(size) for size in _attribute(network, sizes.target).tolist()]
        if 0 in known:
            continue
        with network.graph.inserting_before(node):
            node.replace_all_uses_with(network.graph.call_function(torch.reshape, (data, known)))
        network.graph.erase_node(node)
    network.recompile()
    return network


def _attribute(network: fx.GraphModule, path: str) -> torch.Tensor:
    value: object = network
    for name in path.split("."):
        value = getattr(value, name)
    assert isinstance(value, torch.Tensor)
    return value
