"""The quantisers of QONNX, which Brevitas and others export, as nodes of ONNX.

They round floats to integers of few bits, and scale them back. ONNX Runtime does not know them. Where ONNX's own quantisation means the
same, it takes their place, so that weights are stored and multiplied in 8 bits; else arithmetic does.
https://github.com/fastmachinelearning/qonnx/tree/main/docs/qonnx-custom-ops
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tunefarm_tuning.frontend.onnx.graph_reading import constant_tensors, opsets_of
from tunefarm_tuning.frontend.onnx.operators import MICROSOFT

_DOMAINS = frozenset({"qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general"})
_OPERATORS = frozenset({"Quant", "IntQuant", "BipolarQuant", "Trunc"})
_SINCE_WHERE = 9
_SINCE_QUANTISATION = 10
_SINCE_ROUND = 11
_SINCE_AXES = 13
_MOST_BITS = 8
_MOST_COPIES = 2
"""How large quantised weights may be, as a multiple of all constants: one that several quantisers read is stored for each."""
_SPARE_BYTES = 64 << 20
_NEAREST = frozenset({"ROUND", "HALF_EVEN"})
_Emit = Callable[..., str]
"""Adds a node of an operator, inputs (names or arrays) and attributes, and returns the name of its output."""


def expand_quantisers(model: onnx.ModelProto) -> None:
    """Replace the quantisers of a model's graph by nodes of ONNX, in place; what cannot be expressed stays."""
    graph = model.graph
    if not any(_is_quantiser(node) for node in graph.node):
        return
    opset = opsets_of(model).get("", 1)
    constants = dict(constant_tensors(graph))
    known_bytes = sum(tensor.ByteSize() for tensor in constants.values())
    writer = _Writer(constants, opset, bytes_left=_MOST_COPIES * known_bytes + _SPARE_BYTES)
    for node in graph.node:
        before = len(writer.nodes)
        if not _is_quantiser(node) or not writer.try_expand(node):
            del writer.nodes[before:]
            writer.nodes.append(node)
    expanded = onnx.GraphProto(node=writer.nodes)  # copies: the graph's own go with the next line
    del graph.node[:]
    graph.node.extend(expanded.node)
    graph.initializer.extend(writer.tensors)
    if opset < _SINCE_QUANTISATION and all(entry.domain != MICROSOFT for entry in model.opset_import):
        model.opset_import.add(domain=MICROSOFT, version=1)


def _is_quantiser(node: onnx.NodeProto) -> bool:
    return bool(node.output) and node.domain in _DOMAINS and node.op_type in _OPERATORS


def _stem(node: onnx.NodeProto) -> str:
    """Return how the names of what takes a quantiser's place begin."""
    return f"{node.output[0]}/quantiser"


@dataclass(slots=True, eq=False)
class _Writer:
    """The nodes that take the places of a graph's.

    Attributes:
        constants: The graph's tensors that are known, by name.
        bytes_left: The size of the weights that may still be quantised; those of other quantisers stay as they are.
        arrays: Those of the constants that quantisers read, by name.
        names: Their names, by the number that Python gives an array.
        weights: What gives a weight as it is quantised (operator, inputs, attributes), by the quantiser's inputs and attributes.
    """

    constants: Mapping[str, onnx.TensorProto]
    opset: int
    bytes_left: int
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    weights: dict[Any, tuple[str, list[str], dict[str, int]]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)

    def try_expand(self, node: onnx.NodeProto) -> bool:
        """Write a quantiser as other nodes; return whether it could be, else only some of its nodes are written."""
        try:
            return self._expand(node)
        except (ValueError, TypeError, AttributeError):  # attributes and tensors that no quantiser has
            return False

    def _expand(self, node: onnx.NodeProto) -> bool:
        emit = self._emitter(node)
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = [self._input(name) for name in node.input]
        if node.op_type == "BipolarQuant":
            if len(inputs) != 2 or self.opset < _SINCE_WHERE:
                return False
            emit("Mul", _signs(emit, emit("Div", *inputs)), inputs[1], last=True)
            return True
        if node.op_type == "Trunc":
            return self.opset >= _SINCE_ROUND and _truncate(emit, inputs, attributes)
        if len(inputs) != 4 or not isinstance(inputs[3], np.ndarray) or not inputs[3].size:
            return False
        rounding = _Rounding.of(inputs[3], attributes)
        if rounding.mode not in _MODES:
            return False
        if all(isinstance(value, np.ndarray) for value in inputs):
            if np.broadcast_shapes(*(value.shape for value in inputs)) != inputs[0].shape:
                return False
            key = (*node.input, *sorted(a.SerializeToString() for a in node.attribute))
            if key not in self.weights:
                if inputs[0].nbytes > self.bytes_left:
                    return False
                self.bytes_left -= inputs[0].nbytes
                operator, parts, options = self._weights(rounding, *inputs[:3])
                stem = _stem(node)
                self.weights[key] = (operator, [self._hold(part, stem) for part in parts], options)
            operator, names, options = self.weights[key]
            emit(operator, *names, last=True, **options)
        elif rounding.is_standard(*inputs[1:3]):
            x, scale, zero = inputs[0], inputs[1].reshape(()), inputs[2].reshape(())
            if not rounding.fills_bytes:
                x = emit("Max", x, np.asarray((rounding.low - zero) * scale, scale.dtype).reshape(()))
                x = emit("Min", x, np.asarray((rounding.high - zero) * scale, scale.dtype).reshape(()))
            parameters = (scale, zero.astype(rounding.dtype))
            emit("DequantizeLinear", emit("QuantizeLinear", x, *parameters), *parameters, last=True)
        elif self.opset >= _SINCE_ROUND:
            _write_arithmetic(emit, rounding, *inputs[:3])
        else:
            return False
        return True

    def _weights(
        self, rounding: _Rounding, x: Any, scale: Any, zero: Any
    ) -> tuple[str, list[NDArray[Any]], dict[str, int]]:
        """Return the operator, inputs and attributes that give a quantised weight."""
        steps = rounding.steps(x / scale + zero)
        axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
        if (
            rounding.bits.max() > _MOST_BITS
            or (zero != np.round(zero)).any()
            or len(axes) > 1
            or (scale.ndim not in (x.ndim, 0) and scale.size > 1)
            or (zero.size > 1 and zero.shape != scale.shape)
            or (axes and self.opset < _SINCE_AXES)
            or (scale <= 0).any()
            or (zero < rounding.limits.min).any()
            or (zero > rounding.limits.max).any()
        ):
            return "Identity", [((steps - zero) * scale).astype(x.dtype)], {}
        flat = scale.reshape(-1 if axes else ())
        zeros = np.broadcast_to(zero.reshape(-1), flat.shape) if axes else zero.reshape(())
        parts = [steps.astype(rounding.dtype), flat, zeros.astype(rounding.dtype)]
        return "DequantizeLinear", parts, {"axis": axes[0]} if axes else {}

    def _emitter(self, node: onnx.NodeProto) -> _Emit:
        stem = _stem(node)

        def emit(operator: str, *inputs: Any, last: bool = False, **attributes: Any) -> str:
            names = [value if isinstance(value, str) else self._hold(value, stem) for value in inputs]
            output = node.output[0] if last else f"{stem}/{len(self.nodes)}"
            name = node.name if last else f"{stem}/{len(self.nodes)}"
            self.nodes.append(helper.make_node(operator, names, [output], name=name, **attributes))
            if self.opset < _SINCE_QUANTISATION and operator in ("QuantizeLinear", "DequantizeLinear"):
                self.nodes[-1].domain = MICROSOFT
            return output

        return emit

    def _hold(self, value: NDArray[Any], stem: str) -> str:
        """Return the name of a constant: of the graph's own, or of a new one."""
        if id(value) in self.names:
            return self.names[id(value)]
        name = f"{stem}/constant{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _input(self, name: str) -> Any:
        """Return an input's array if it is known, else its name."""
        tensor = self.constants.get(name)
        if tensor is None:
            return name
        if name not in self.arrays:
            self.arrays[name] = numpy_helper.to_array(tensor)
            self.names[id(self.arrays[name])] = name
        return self.arrays[name]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rounding:
    """The integers that a quantiser rounds to, and how.

    Attributes:
        low: The least of them.
        high: The largest.
    """

    bits: NDArray[Any]
    is_signed: bool
    mode: str
    low: NDArray[Any]
    high: NDArray[Any]

    @staticmethod
    def of(bits: NDArray[Any], attributes: Mapping[str, Any]) -> _Rounding:
        """Read a quantiser's attributes."""
        bits = bits.astype(np.float32)
        is_signed, is_narrow = bool(attributes.get("signed", 1)), bool(attributes.get("narrow", 0))
        mode = attributes.get("rounding_mode", b"ROUND").decode().upper()
        half = np.power(np.float32(2), bits - 1)
        if is_signed:
            low, high = -half + is_narrow, half - 1
        else:
            low, high = 0 * bits, 2 * half - 1 - is_narrow
        return _Rounding(bits=bits, is_signed=is_signed, mode=mode, low=low, high=high)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int8 if self.is_signed else np.uint8)

    @property
    def limits(self) -> Any:
        return np.iinfo(self.dtype)

    @property
    def is_sign(self) -> bool:
        """Whether the integers are -1 and 1: one bit, which holds a sign."""
        return self.is_signed and bool((self.bits == 1).all())

    @property
    def fills_bytes(self) -> bool:
        """Whether the integers are all that 8 bits hold."""
        return bool((self.low == self.limits.min).all() and (self.high == self.limits.max).all())

    def is_standard(self, scale: Any, zero: Any) -> bool:
        """Return whether ONNX's quantisation rounds to the same: ties go to even numbers before the zero point is added there."""
        if not isinstance(scale, np.ndarray) or not isinstance(zero, np.ndarray):
            return False
        if max(scale.size, zero.size, self.bits.size) > 1 or self.mode not in _NEAREST or self.is_sign:
            return False
        number = float(zero.reshape(()))
        is_inside = number % 2 == 0 and self.limits.min <= number <= self.limits.max
        return is_inside and float(self.bits.reshape(())) <= _MOST_BITS and float(scale.reshape(())) > 0

    def steps(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the integers of numbers."""
        if self.is_sign:
            return np.where(x >= 0, 1, -1).astype(x.dtype)
        return _MODES[self.mode](_Numpy(), np.clip(x, self.low, self.high))  # type: ignore[no-any-return]


def _write_arithmetic(emit: _Emit, rounding: _Rounding, x: Any, scale: Any, zero: Any) -> None:
    x = emit("Add", emit("Div", x, scale), zero)
    if rounding.is_sign:
        x = _signs(emit, x)
    else:
        x = emit("Min", emit("Max", x, rounding.low), rounding.high)
        x = _MODES[rounding.mode](emit, x)
    emit("Mul", emit("Sub", x, zero), scale, last=True)


def _truncate(emit: _Emit, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> bool:
    """Write the first version of `Trunc`: some of the lowest bits are dropped."""
    mode = attributes.get("rounding_mode", b"FLOOR").decode().upper()
    if len(inputs) != 5 or mode not in _MODES:
        return False
    if not all(isinstance(bits, np.ndarray) and bits.size == 1 for bits in inputs[3:]):
        return False
    x, scale, zero, from_bits, to_bits = inputs
    dropped = np.power(np.float32(2), (from_bits - to_bits).astype(np.float32))
    x = emit("Div", emit("Round", emit("Add", emit("Div", x, scale), zero)), dropped)
    emit("Mul", emit("Sub", _MODES[mode](emit, x), zero), scale, last=True)
    return True


def _signs(emit: _Emit, x: Any) -> str:
    """Return 1 for what is not negative, and -1."""
    is_negative = emit("Less", x, np.zeros((), np.float32))
    return emit("Where", is_negative, np.full((), -1, np.float32), np.ones((), np.float32))


class _Numpy:
    """The operators of `_MODES`, computed at once."""

    def __call__(self, operator: str, *inputs: Any) -> Any:
        functions: Mapping[str, Callable[..., Any]] = {
            "Round": np.round,
            "Ceil": np.ceil,
            "Floor": np.floor,
            "Sign": np.sign,
            "Abs": np.abs,
            "Mul": np.multiply,
            "Add": np.add,
        }
        return functions[operator](*inputs)


def _away(operator: str, shift: float = 0.0) -> Callable[[Any, Any], Any]:
    """Return the rounding of magnitudes by an operator, once a number is added to them."""

    def convert(emit: Any, x: Any) -> Any:
        magnitude = emit("Abs", x)
        if shift:
            magnitude = emit("Add", magnitude, np.full((), shift, np.float32))
        return emit("Mul", emit("Sign", x), emit(operator, magnitude))

    return convert


def _plainly(operator: str) -> Callable[[Any, Any], Any]:
    return lambda emit, x: emit(operator, x)


_MODES: Mapping[str, Callable[[Any, Any], Any]] = {
    "ROUND": _plainly("Round"),
    "HALF_EVEN": _plainly("Round"),
    "CEIL": _plainly("Ceil"),
    "FLOOR": _plainly("Floor"),
    "UP": _away("Ceil"),
    "DOWN": _away("Floor"),
    "HALF_UP": _away("Floor", 0.5),
    "HALF_DOWN": _away("Ceil", -0.5),
}
"""How quantisers round: each takes what emits nodes, or `_Numpy`, and the number."""
