"""Have ONNX Runtime multiply bytes exactly on every CPU.

On x86 CPUs without an instruction for products of bytes (AVX2 alone, AVX-512 without VNNI) it multiplies unsigned activations and
signed weights by `vpmaddubsw`, whose sums of two products end at 16 bits: with large weights its results are wrong. Unsigned
weights it multiplies exactly there, and they mean the same with a zero point that is 128 larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
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
_MADE_UNSIGNED = {"DynamicQuantizeLinear": (0, 2)}
"""Results that are uint8 always, by operator."""


def with_exact_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network whose signed constant weights are unsigned where unsigned activations are multiplied by them.

    Returns:
        The model itself if it has no such weights; otherwise a copy.
    """
    before = _Tensors(model)
    if not any(_signed_weights(before, node) for node in model.graph.node):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    tensors = _Tensors(result)
    for node in result.graph.node:
        for product in _signed_weights(tensors, node):
            node.input.extend([""] * (product.zero + 1 - len(node.input)))
            node.input[product.zero] = tensors.unsigned(node.input[product.zero])
            node.input[product.weight] = tensors.unsigned(node.input[product.weight])
    return result


def _signed_weights(tensors: _Tensors, node: onnx.NodeProto) -> list[_Product]:
    """Return the products of a node that its unsigned form computes exactly."""
    return [
        product
        for product in _PRODUCTS.get(node.op_type, ())
        if tensors.is_signed_constant(_input(node, product.weight))
        and (not _input(node, product.zero) or tensors.is_signed_constant(_input(node, product.zero)))
        and (not product.data or any(tensors.is_unsigned(_input(node, at)) for at in product.data))
    ]


def _input(node: onnx.NodeProto, position: int) -> str:
    return str(node.input[position]) if position < len(node.input) else ""


class _Tensors:
    """The constants of a graph, and what is known of the element types of others."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        self._unsigned: dict[str, str] = {}
        for node in model.graph.node:
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.name == "value":
                        self._constants[node.output[0]] = attribute.t
            for position in _MADE_UNSIGNED.get(node.op_type, ()):
                if position < len(node.output):
                    self._types[node.output[position]] = TensorProto.UINT8
        self._types |= {name: tensor.data_type for name, tensor in self._constants.items()}
        for node in model.graph.node:
            if node.op_type == "QuantizeLinear" and _input(node, 2) in self._types:
                self._types[node.output[0]] = self._types[node.input[2]]

    def is_signed_constant(self, name: str) -> bool:
        return name in self._constants and bool(self._types[name] == TensorProto.INT8)

    def is_unsigned(self, name: str) -> bool:
        return bool(self._types.get(name) == TensorProto.UINT8)

    def unsigned(self, name: str) -> str:
        """Return the name of the same numbers plus 128, as uint8; of 128 if there is no name."""
        if name not in self._unsigned:
            values = np.zeros((), np.int8) if not name else numpy_helper.to_array(self._constants[name])
            moved = (values.astype(np.int16) + _HALF).astype(np.uint8)
            self._unsigned[name] = f"{name or 'zero'} as uint8"
            self._graph.initializer.append(numpy_helper.from_array(moved, self._unsigned[name]))
        return self._unsigned[name]
