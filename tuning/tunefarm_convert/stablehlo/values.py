"""The values of a program during its conversion: constants, or ONNX tensors in one or more layouts.

Most of these programs have images as NHWC, ONNX has them as NCHW, and programs often broadcast one number over a tensor.
So a value is held in some order of its dimensions, and with size one along dimensions that it was broadcast along.
Elementwise operators compute in the order and on the elements that are held. A transpose is added only for an operator
that needs another order, and an Expand only for one that needs all elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.onnx_writer import OnnxWriter
from tunefarm_convert.stablehlo.folding import fold
from tunefarm_convert.stablehlo.program import BrokenOperandError
from tunefarm_tuning.core.array_file import numpy_dtype

_SMALL = 1024
"""Maximum number of elements of a broadcast constant that is stored whole; larger ones are expanded at run time."""

Order = tuple[int, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Value:
    """A tensor of the program.

    Attributes:
        shape: Its shape in the program.
        dtype: NumPy's name, or ``bfloat16``.
        data: The elements of a constant; a view with strides of zero where one element stands for many.
        held: The shape that is held: along each dimension the full size, or 1.
        forms: The ONNX tensors that hold it, by the order of its dimensions in them.
        whole: The ONNX tensors with all its elements, likewise.
        broken: Whether it comes from an operation that is not read.
    """

    shape: tuple[int, ...]
    dtype: str
    data: NDArray[Any] | None = None
    held: tuple[int, ...] = ()
    forms: dict[Order, str] = field(default_factory=dict)
    whole: dict[Order, str] = field(default_factory=dict)
    broken: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def plain(self) -> Order:
        return tuple(range(len(self.shape)))

    @property
    def order(self) -> Order:
        """The order in which it was computed."""
        return next(iter(self.forms), self.plain)


Values = tuple[Value, ...]


def constant(data: NDArray[Any]) -> Value:
    """Return a constant value."""
    return Value(shape=data.shape, dtype=str(data.dtype), data=data, held=compact(data).shape)


def splat(number: Any, dtype: str, shape: Sequence[int] = ()) -> Value:
    """Return a constant of one number, broadcast to a shape."""
    return constant(np.broadcast_to(np.array(number, numpy_dtype(dtype)), tuple(shape)))


def broken(shape: Sequence[int], dtype: str) -> Value:
    """Return a placeholder for the result of an unsupported operation."""
    return Value(shape=tuple(shape), dtype=dtype, held=tuple(shape), broken=True)


def compact(data: NDArray[Any]) -> NDArray[Any]:
    """Return an array with size one along dimensions whose elements are one in memory. The rank stays."""
    return (
        data[tuple(slice(0, 1) if not stride else slice(None) for stride in data.strides)]
        if data.size
        else data
    )


def one_number(value: Value) -> Any:
    """Return the number that all elements of a constant equal; None for any other value."""
    if value.data is None or value.data.size == 0:
        return None
    small = compact(value.data)
    first = small.reshape(-1)[0]
    return first.item() if small.size == 1 or bool(np.all(small == first)) else None


class Emitter:
    """Makes ONNX tensors of values, and values of ONNX tensors."""

    def __init__(self, writer: OnnxWriter) -> None:
        self.writer = writer

    def check(self, value: Value) -> None:
        """Raise `BrokenOperandError` for a broken value."""
        if value.broken:
            raise BrokenOperandError

    def computed(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        order: Order | None = None,
        held: Sequence[int] | None = None,
    ) -> Value:
        """Return the value that an ONNX tensor holds, in the given order of dimensions and held shape."""
        if dtype == "bfloat16":
            self.writer.need_bfloat16()
        shape = tuple(shape)
        order = tuple(range(len(shape))) if order is None else order
        return Value(
            shape=shape, dtype=dtype, held=shape if held is None else tuple(held), forms={order: name}
        )

    def name(self, value: Value, order: Order | None = None, *, whole: bool = True) -> str:
        """Return the ONNX tensor of a value in an order of dimensions, with all its elements (`whole`) or as stored."""
        self.check(value)
        order = value.plain if order is None else order
        if value.data is not None:
            return self._stored(value, value.data, order, whole=whole)
        if order not in value.forms:
            first = value.order
            value.forms[order] = self._arranged(value, first, order)
        held = value.forms[order]
        if not whole or value.held == value.shape:
            return held
        if order not in value.whole:
            value.whole[order] = self.writer.node(
                "Expand", [held, self.writer.ints([value.shape[i] for i in order])]
            )
        return value.whole[order]

    def _stored(self, value: Value, data: NDArray[Any], order: Order, *, whole: bool) -> str:
        names = value.whole if whole else value.forms
        if order not in names:
            small = compact(data)
            if whole and small.size < data.size > _SMALL:
                held = self.writer.weight(np.transpose(small, order))
                names[order] = self.writer.node(
                    "Expand", [held, self.writer.ints([value.shape[i] for i in order])]
                )
            else:
                names[order] = self.writer.weight(np.transpose(data if whole else small, order).copy())
        return names[order]

    def _arranged(self, value: Value, first: Order, order: Order) -> str:
        name = value.forms[first]
        sizes = [value.held[i] for i in order]
        if [i for i in first if value.held[i] != 1] == [i for i in order if value.held[i] != 1]:
            return self.writer.node("Reshape", [name, self.writer.ints(sizes)])
        return self.writer.node("Transpose", [name], perm=[first.index(i) for i in order])

    def apply(self, operator: str, *values: Value, dtype: str | None = None, **attributes: Any) -> Value:
        """Apply an elementwise ONNX operator to values of one shape; the result has the first one's dtype unless `dtype` says another."""
        for value in values:
            self.check(value)
        shape, dtype = values[0].shape, dtype or values[0].dtype
        if any(value.shape != shape for value in values):
            raise ValueError(f"{operator} of shapes {[list(value.shape) for value in values]}")
        arrays = [compact(value.data) for value in values if value.data is not None]
        if len(arrays) == len(values):
            data = fold(operator, arrays, numpy_dtype(dtype))
            if data is not None:
                return constant(np.broadcast_to(data, shape))
        order = self.common_order(values)
        held = tuple(max(sizes) for sizes in zip(*(value.held for value in values), strict=True))
        all_known = len(arrays) == len(values)
        names = [self._operand(value, order, whole_rank=all_known) for value in values]
        return self.computed(self.writer.node(operator, names, **attributes), shape, dtype, order, held)

    def common_order(self, values: Sequence[Value]) -> Order:
        """Return the order of dimensions of most elements of the values, which have one rank."""
        weights: dict[Order, int] = {}
        for value in values:
            if value.data is None and not value.broken:
                for order in value.forms:
                    weights[order] = weights.get(order, 0) + int(np.prod(value.held, dtype=np.int64))
        plain = values[0].plain
        # on a tie, the permuted order: an operator needed it
        return max(weights, key=lambda order: (weights[order], order != plain), default=plain)

    def _operand(self, value: Value, order: Order, *, whole_rank: bool) -> str:
        if value.data is None or whole_rank:
            return self.name(value, order, whole=False)
        small = np.transpose(compact(value.data), order)
        if small.size == 1:
            return self.writer.weight(small.reshape(()))
        if order != value.plain:
            return self.name(value, order, whole=False)
        first = next(i for i, size in enumerate(small.shape) if size != 1)
        if small.size <= _SMALL:
            return self.writer.weight(small.reshape(small.shape[first:]))
        return self.name(value, order, whole=False)

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add an ONNX node of one output."""
        return self.writer.node(operator, inputs, **attributes)
