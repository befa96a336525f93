"""Have ONNX Runtime multiply bytes exactly on every CPU.

On x86 CPUs without an instruction for products of bytes (AVX2 alone, AVX-512 without VNNI) it multiplies unsigned activations and
signed weights by `vpmaddubsw`, whose sums of two products end at 16 bits: with large weights its results are wrong. Unsigned
weights it multiplies exactly there, and they mean the same with a zero point that is 128 larger. Its graph optimisations make such
products of `DequantizeLinear` before a product of floats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

_HALF = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """Positions among a node's inputs.

    Attributes:
        weight: The weight.
        zero: Its zero point.
        data: What has the element type of the activations, any of them; empty if the node rounds floats to uint8.
    """

    weight: int
    zero: int
    data: tuple[int, ...] = ()


_PRODUCTS = {
    "QLinearConv": (_Product(weight=3, zero=5, data=(2, 0)),),
    "QLinearMatMul": (_Product(weight=3, zero=5, data=(2, 0)),),
    "QGemm": (_Product(weight=3, zero=5, data=(2, 0)),),
    "MatMulInteger": (_Product(weight=1, zero=3, data=(2, 0)),),
    "MatMulIntegerToFloat": (_Product(weight=1, zero=5, data=(4, 0)),),
    "QAttention": (_Product(weight=1, zero=7, data=(6, 0)),),
    "DynamicQuantizeMatMul": (_Product(weight=1, zero=3),),
    "DynamicQuantizeLSTM": (_Product(weight=1, zero=9), _Product(weight=2, zero=11)),
}
"""By operator; `ConvInteger` is exact as it is."""
_DEQUANTISED = _Product(weight=0, zero=2)
_FUSED = frozenset({"Conv", "Gemm", "MatMul"})
"""Products of floats that the optimiser makes products of bytes, where both factors come from `DequantizeLinear`. It makes signed
activations unsigned."""
_MADE_UNSIGNED = {"DynamicQuantizeLinear": (0, 2)}
"""Results that are uint8 always, by operator."""


def with_exact_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network whose signed constant weights are unsigned where unsigned activations are multiplied by them.

    Returns:
        The model itself if it has no such weights; otherwise a copy.
    """
    if not _signed_weights(_Tensors(model.graph)):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    tensors = _Tensors(result.graph)
    for node, product in _signed_weights(tensors):
        node.input.extend([""] * (product.zero + 1 - len(node.input)))
        zero = node.input[product.zero]
        shape = tensors.shape(node.input[1]) if product is _DEQUANTISED and not zero else ()
        node.input[product.zero] = tensors.unsigned(zero) if zero else tensors.half(shape)
        node.input[product.weight] = tensors.unsigned(node.input[product.weight])
    return result


def _signed_weights(tensors: _Tensors) -> list[tuple[onnx.NodeProto, _Product]]:
    """Return the nodes, and which of their weights to change."""
    pairs = [
        (node, product)
        for node in tensors.graph.node
        for product in _PRODUCTS.get(node.op_type, ())
        if not product.data or any(tensors.is_unsigned(_input(node, at)) for at in product.data)
    ]
    dequantised = {node.output[0]: node for node in tensors.graph.node if node.op_type == "DequantizeLinear"}
    weights: dict[str, onnx.NodeProto] = {}
    for node in tensors.graph.node:
        factors = [dequantised.get(_input(node, at)) for at in (0, 1)] if node.op_type in _FUSED else []
        match factors:
            case [onnx.NodeProto(), onnx.NodeProto() as weight]:
                if _input(weight, 2) or _input(weight, 1) in tensors.constants:
                    weights[weight.output[0]] = weight
    pairs += [(node, _DEQUANTISED) for node in weights.values()]
    return [
        (node, product)
        for node, product in pairs
        if tensors.is_signed_constant(_input(node, product.weight))
        and (not _input(node, product.zero) or tensors.is_signed_constant(_input(node, product.zero)))
    ]


def _input(node: onnx.NodeProto, position: int) -> str:
    return str(node.input[position]) if position < len(node.input) else ""


class _Tensors:
    """The constants of a graph, and what is known of the element types of others."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self._types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
        self._added: set[str] = set()
        for node in graph.node:
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.name == "value":
                        self.constants[node.output[0]] = attribute.t
            for position in _MADE_UNSIGNED.get(node.op_type, ()):
                if position < len(node.output):
                    self._types[node.output[position]] = TensorProto.UINT8
        self._types |= {name: tensor.data_type for name, tensor in self.constants.items()}
        for node in graph.node:
            if node.op_type == "QuantizeLinear" and _input(node, 2) in self._types:
                self._types[node.output[0]] = self._types[node.input[2]]

    def is_signed_constant(self, name: str) -> bool:
        return name in self.constants and bool(self._types[name] == TensorProto.INT8)

    def is_unsigned(self, name: str) -> bool:
        return bool(self._types.get(name) == TensorProto.UINT8)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a constant."""
        return tuple(self.constants[name].dims)

    def unsigned(self, name: str) -> str:
        """Return the name of the same numbers plus 128, as uint8."""
        values = numpy_helper.to_array(self.constants[name])
        return self._constant(f"{name} as uint8", (values.astype(np.int16) + _HALF).astype(np.uint8))

    def half(self, shape: tuple[int, ...]) -> str:
        """Return the name of zero points of 128."""
        return self._constant(f"zero points {list(shape)} as uint8", np.full(shape, _HALF, np.uint8))

    def _constant(self, name: str, values: NDArray[np.uint8]) -> str:
        if name not in self._added:
            self._added.add(name)
            self.graph.initializer.append(numpy_helper.from_array(values, name))
        return name
