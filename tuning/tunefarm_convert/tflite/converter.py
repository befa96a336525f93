"""The context of a converter: an operator, its tensors, and the ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.onnx_writer import OnnxWriter
from tunefarm_convert.tflite.graph import Operator, Tensor, bad_file
from tunefarm_convert.tflite.values import Values
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean

_RELU = 1
_RANGES = {2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""The ranges of fused activations. The interpreter's operators fuse no other activations of the format."""


TensorOf = tuple[Values, int]
"""A tensor of one of the file's graphs, in one of its calls."""


class Program(Protocol):
    """The conversion of the whole file, for operators that call other graphs.

    Attributes:
        variables: The tensor that each variable of the file holds at the operator that is converted.
        states: Variables that the network reads and sets at each call.
        initializes: Whether the graph that is converted sets the variables before the first call.
    """

    variables: dict[str, TensorOf]
    states: frozenset[str]
    initializes: bool

    def call(self, number: Any, arguments: Sequence[TensorOf]) -> list[TensorOf]:
        """Convert a graph on some arguments, and return its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """An operator to convert, with the conversion's values and writer."""

    operator: Operator
    values: Values
    writer: OnnxWriter
    program: Program

    def bad_file(self, message: str) -> InvalidModelError:
        """Return the error for an operator that breaks TFLite's own rules."""
        return bad_file(f"{self.operator.label}: {message}")

    def unsupported_form(self, why: str) -> InvalidModelError:
        """Return the error for a known operator in an unsupported form."""
        kind, node = clean(self.operator.kind, 60), str(self.operator.index)
        message = f"{self.operator.label}: {why}"
        return InvalidModelError(message, code="unsupported-operator", operator=kind, node=node)

    def option(self, name: str, default: Any = 0) -> Any:
        """Return a field of the operator's options."""
        return self.operator.options.get(name, default)

    def has(self, position: int) -> bool:
        """Return whether an input is given."""
        return position < len(self.operator.inputs) and self.operator.inputs[position] >= 0

    def index(self, position: int) -> int:
        """Return the tensor of an input."""
        if not self.has(position):
            raise bad_file(f"{self.operator.label}, has no input number {position}")
        return self.operator.inputs[position]

    def inputs(self) -> list[int]:
        """Return all inputs; none may be omitted."""
        return [self.index(i) for i in range(len(self.operator.inputs))]

    def output(self, position: int = 0) -> int:
        """Return the tensor of an output."""
        if position >= len(self.operator.outputs):
            raise bad_file(f"{self.operator.label}, has no output number {position}")
        return self.operator.outputs[position]

    def tensor(self, position: int) -> Tensor:
        return self.values.tensor(self.index(position))

    def shape(self, position: int) -> tuple[int, ...]:
        return self.values.shape(self.index(position))

    def out_shape(self, position: int = 0) -> tuple[int, ...]:
        return self.values.shape(self.output(position))

    def constant(self, position: int, operand: str) -> NDArray[Any]:
        """Return an input that must be a constant."""
        data = self.values.constant(self.index(position))
        if data is None:
            raise self.unsupported_form(
                f"{operand} is computed by the graph; tunefarm supports constant ones only"
            )
        return data

    def ints(self, position: int, operand: str) -> list[int]:
        """Return an input that must be a constant list of integers (one of no dimension is a list of one)."""
        array = self.constant(position, operand)
        if array.dtype.kind not in "iu":
            raise self.bad_file(f"{operand} is not an integer")
        return [int(number) for number in array.reshape(-1).tolist()]

    def axis(self, value: int, rank: int) -> int:
        """Return a dimension counted from the front."""
        if not -rank <= value < rank:
            raise self.bad_file(f"there is no dimension {value} of {rank}")
        return value % rank

    def need_rank(self, position: int, *ranks: int) -> tuple[int, ...]:
        """Return the shape of an input that must have one of some numbers of dimensions."""
        shape = self.shape(position)
        if len(shape) not in ranks:
            raise self.unsupported_form(
                f"input {position} of shape {list(shape)}; tunefarm supports {' or '.join(map(str, ranks))} "
                "dimensions",
            )
        return shape

    def prefers_first(self, *indexes: int) -> bool:
        """Return whether any of the tensors is an image that was computed with its channels first."""
        return any(self.values.shape(i) and self.values.is_first_only(i) for i in indexes)

    def can_stay_raw(self, indexes: Sequence[int], outputs: Sequence[int]) -> bool:
        """Return whether integers can be moved without dequantising: all tensors have one scale and zero point."""
        tensors = [self.values.tensor(i) for i in (*indexes, *outputs)]
        if not all(tensor.is_quantized for tensor in tensors):
            return not any(tensor.is_quantized for tensor in tensors)
        known = [tensor.quantization for tensor in tensors if tensor.quantization is not None]
        same = all(known[0].same_as(quantization) for quantization in known[1:])
        return same and len(known[0].scale) == 1 and len({tensor.dtype for tensor in tensors}) == 1

    def scalar(self, value: float, like: int) -> str:
        """Add a constant of a tensor's dtype, or of float32 if the tensor is quantised."""
        tensor = self.values.tensor(like)
        return self.writer.weight(np.array(value, "float32" if tensor.is_quantized else tensor.dtype))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        return self.writer.node(operator, inputs, **attributes)

    def finish(self, name: str, *, first: bool = False, raw: bool = False, position: int = 0) -> None:
        """Set the ONNX tensor of an output."""
        self.values.put(self.output(position), name, first=first, raw=raw)

    def activated(self, name: str) -> str:
        """Apply the activation that is fused into the operator."""
        kind = self.option("FusedActivationFunction")
        if kind == 0:
            return name
        if kind == _RELU:
            return self.node("Relu", name)
        if kind in _RANGES:
            low, high = _RANGES[kind]
            output = self.output()
            return self.node("Clip", name, self.scalar(low, output), self.scalar(high, output))
        raise self.unsupported_form(f"fused activation number {kind} is not supported")


def variable_name(operator: Operator) -> str:
    """Return the name of the variable that a `VAR_HANDLE` refers to, with that of its container."""
    return f"{operator.options.get('Container', '')}/{operator.options.get('SharedName', '')}"


Converter = Callable[[OperatorContext], None]
