"""Have ONNX Runtime multiply bytes exactly on every CPU.

On x86 CPUs without an instruction for products of bytes (AVX2 alone, AVX-512 without VNNI) it multiplies unsigned activations and
signed weights by `vpmaddubsw`, whose sums of two products end at 16 bits: with large weights its results are wrong. Unsigned
weights it multiplies exactly there, and they mean the same with a zero point that is 128 larger. Its graph optimisations make such
products of `DequantizeLinear` before a product of floats. `ConvInteger`, which multiplies the other way round, is wrong of signed
activations and unsigned weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from tunefarm_tuning.frontend.onnx.graph_reading import constant_tensors

_HALF = 128
_OTHER = {TensorProto.INT8: TensorProto.UINT8, TensorProto.UINT8: TensorProto.INT8}
_DTYPES = {TensorProto.INT8: np.int8, TensorProto.UINT8: np.uint8}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """Positions among a node's inputs, and the types that ONNX Runtime multiplies wrongly.

    Attributes:
        weight: The weight.
        zero: Its zero point.
        data: What has the element type of the activations, any of them; empty if the node rounds floats to uint8.
        wrong: The element type of weights that become the other one, if the activations have that.
    """

    weight: int
    zero: int
    data: tuple[int, ...] = ()
    wrong: int = TensorProto.INT8


_PRODUCTS = {
    "ConvInteger": (_Product(weight=1, zero=3, data=(2, 0), wrong=TensorProto.UINT8),),
    "QLinearConv": (_Product(weight=3, zero=5, data=(2, 0)),),
    "QLinearMatMul": (_Product(weight=3, zero=5, data=(2, 0)),),
    "QGemm": (_Product(weight=3, zero=5, data=(2, 0)),),
    "MatMulInteger": (_Product(weight=1, zero=3, data=(2, 0)),),
    "MatMulIntegerToFloat": (_Product(weight=1, zero=5, data=(4, 0)),),
    "QAttention": (_Product(weight=1, zero=7, data=(6, 0)),),
    "DynamicQuantizeMatMul": (_Product(weight=1, zero=3),),
    "DynamicQuantizeLSTM": (_Product(weight=1, zero=9), _Product(weight=2, zero=11)),
}
_DEQUANTISED = _Product(weight=0, zero=2)
_FUSED = frozenset({"Conv", "Gemm", "MatMul"})
"""Products of floats that the optimiser makes products of bytes, where both factors come from `DequantizeLinear`. It makes signed
activations unsigned."""
_MADE_UNSIGNED = {"DynamicQuantizeLinear": (0, 2)}
"""Results that are uint8 always, by operator."""


def multiply_exactly(model: onnx.ModelProto) -> Callable[[], None]:
    """Change constant weights, in place, where ONNX Runtime multiplies them wrongly; return what takes the changes back."""
    graph = model.graph
    tensors = _Tensors(graph)
    products = _wrong_products(tensors)
    before = [(node, list(node.input)) for node, _ in products]
    for node, product in products:
        node.input.extend([""] * (product.zero + 1 - len(node.input)))
        zero = node.input[product.zero]
        shape = tensors.shape(node.input[1]) if product is _DEQUANTISED and not zero else ()
        node.input[product.zero] = tensors.shifted(zero) if zero else tensors.half(shape, product.wrong)
        node.input[product.weight] = tensors.shifted(node.input[product.weight])

    def take_back() -> None:
        for node, names in reversed(before):
            del node.input[:]
            node.input.extend(names)
        del graph.initializer[len(graph.initializer) - tensors.added :]

    return take_back


@contextmanager
def exact_products(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Make the products of a model exact within the block, in place: a copy of the model would be another copy of its weights."""
    take_back = multiply_exactly(model)
    try:
        yield model
    finally:
        take_back()


def _wrong_products(tensors: _Tensors) -> list[tuple[onnx.NodeProto, _Product]]:
    """Return the nodes, and which of their weights to change."""
    pairs = [
        (node, product)
        for node in tensors.graph.node
        for product in _PRODUCTS.get(node.op_type, ())
        if not product.data
        or any(tensors.type(_input(node, at)) == _OTHER[product.wrong] for at in product.data)
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
        if tensors.is_constant(_input(node, product.weight), product.wrong)
        and (not _input(node, product.zero) or tensors.is_constant(_input(node, product.zero), product.wrong))
    ]


def _input(node: onnx.NodeProto, position: int) -> str:
    return str(node.input[position]) if position < len(node.input) else ""


class _Tensors:
    """The constants of a graph, and what is known of the element types of others."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.constants = dict(constant_tensors(graph))
        self._types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
        self._added: set[str] = set()  # names
        for node in graph.node:
            for position in _MADE_UNSIGNED.get(node.op_type, ()):
                if position < len(node.output):
                    self._types[node.output[position]] = TensorProto.UINT8
        self._types |= {name: tensor.data_type for name, tensor in self.constants.items()}
        for node in graph.node:
            if node.op_type == "QuantizeLinear":
                zero = _input(node, 2)
                if zero in self._types or not (zero or node.attribute):
                    self._types[node.output[0]] = self._types.get(zero, TensorProto.UINT8)

    @property
    def added(self) -> int:
        """The number of constants that were added to the graph's end."""
        return len(self._added)

    def is_constant(self, name: str, element_type: int) -> bool:
        return name in self.constants and self._types[name] == element_type

    def type(self, name: str) -> int | None:
        return self._types.get(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a constant."""
        return tuple(self.constants[name].dims)

    def shifted(self, name: str) -> str:
        """Return the name of the same numbers in the other type of bytes: plus 128 if that is uint8, minus 128 if it is int8."""
        other = _OTHER[self.constants[name].data_type]
        values = numpy_helper.to_array(self.constants[name]).astype(np.int16)
        return self._constant(name, other, values + (_HALF if other == TensorProto.UINT8 else -_HALF))

    def half(self, shape: tuple[int, ...], element_type: int) -> str:
        """Return the name of zero points of 0 of a type, in the other one."""
        other = _OTHER[element_type]
        value = _HALF if other == TensorProto.UINT8 else -_HALF
        return self._constant(f"zero points {list(shape)}", other, np.full(shape, value, np.int16))

    def _constant(self, name: str, element_type: int, values: NDArray[np.int16]) -> str:
        dtype = _DTYPES[element_type]
        name = f"{name} as {dtype.__name__}"
        if name not in self._added:
            self._added.add(name)
            self.graph.initializer.append(numpy_helper.from_array(values.astype(dtype), name))
        return name
