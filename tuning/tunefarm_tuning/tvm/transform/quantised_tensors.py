"""Find tensors that are 8-bit integers times a scale, through steps that only move elements or select the largest.

What lies between the integers and a product need not be in floats: the integers are moved instead, and a maximum of scaled integers is
the scaled maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite, prod
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import entry_names, operator_name, static_shape, tensor_dtype

_BYTES = {"int8", "uint8"}
_MOVES = {"relax.reshape", "relax.permute_dims"}
_MORE_MOVES = _MOVES | {
    *("relax.expand_dims", "relax.squeeze", "relax.flatten", "relax.strided_slice", "relax.broadcast_to"),
    *("relax.take", "relax.gather_elements", "relax.gather_nd", "relax.tile"),
    *("relax.nn.max_pool1d", "relax.nn.max_pool2d", "relax.nn.max_pool3d"),
}
"""Operators that give the same elements, or the largest ones, whether they are scaled before or after; scales are positive."""
_GRID = 1e-4
"""How far a padding or a bound may be from a multiple of the scale, as a share of the scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """A tensor as ``(values - zero) * scale``.

    Attributes:
        values: Returns the 8-bit integers, in the graph that is being written.
        dtype: Their type; int16 where the instruction takes pairs of these.
        zero: A number; or a tensor of one integer, or None for 0, where it is known at run time only.
        scale: A number; 1.0 where the tensor is one of integers; or a tensor of one element.
    """

    values: Callable[[], Any]
    dtype: str
    zero: Any
    scale: Any = 1.0

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest integer that the tensor can have; of a wider type, the lowest 256."""
        least = int(np.iinfo(self.dtype).min)
        return least, least + 255


class QuantisedTensors:
    """The quantised tensors of a module."""

    def __init__(
        self,
        mod: tvm.IRModule,
        visit: Callable[[Any], Any],
        emit: Callable[[Any], Any],
        rounded_to: str,
    ) -> None:
        """Look at a module's entries.

        Args:
            mod: The module.
            visit: Returns what an expression of the module is in the graph that is being written.
            emit: Binds an expression there.
            rounded_to: The type of 8-bit integers to which the graph that is being written rounds floats.
        """
        self._visit = visit
        self._emit = emit
        self._rounded_to = rounded_to
        self._rounded: dict[Any, Any] = {}
        self._known: dict[Any, Any] = {
            binding.var: binding.value
            for name in entry_names(mod)
            for block in mod[name].body.blocks
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
        }
        self._scaled: dict[Any, Quantised | None] = {}

    def scaled(self, value: Any) -> Quantised | None:
        """Return a float tensor whose scale and zero point are known; None if it is not quantised.

        Each variable is looked through once, and its integers are written once: a tensor that is joined with itself, and so on, would
        else take twice as long with each step.
        """
        if not isinstance(value, relax.Var):
            return self._scaled_value(value)
        if value not in self._scaled:
            data = self._scaled_value(value)
            self._scaled[value] = None if data is None else replace(data, values=cache(data.values))
        return self._scaled[value]

    def _scaled_value(self, value: Any) -> Quantised | None:
        call = self._value(value)
        scaled = self._by_scalar(call, "relax.multiply")
        if scaled is None:
            return self._moved(call)
        inner, scale = scaled
        if not 0 < scale < np.inf:
            return None
        integers, zero = self._integers_of(inner)
        if integers is None:
            factor = self.scaled(call.args[0])  # another factor, as the alpha of a Gemm
            return None if factor is None else replace(factor, scale=factor.scale * scale)
        limits = np.iinfo(tensor_dtype(integers))
        if not float(zero).is_integer() or not limits.min <= zero <= limits.max:
            return None
        if self._is_rounded_anew(integers):
            shift = np.iinfo(self._rounded_to).min - limits.min
            return Quantised(
                values=lambda: self._round(integers, shift),
                dtype=self._rounded_to,
                scale=scale,
                zero=int(zero) + shift,
            )
        return Quantised(
            values=lambda: self._visit(integers), dtype=tensor_dtype(integers), scale=scale, zero=int(zero)
        )

    def rounded_anew(self, call: Any) -> Quantised | None:
        """Return a float tensor whose integers are of another type in the graph that is being written; None for any other."""
        if operator_name(call) != "relax.multiply":
            return None
        integers, _ = self._integers_of(self._value(call.args[0]))
        return None if integers is None or not self._is_rounded_anew(integers) else self.scaled(call)

    def _integers_of(self, call: Any) -> tuple[Any, float]:
        """Return the 8-bit integers that a call makes floats, and the zero point that it subtracts; None for any other call."""
        shifted = self._by_scalar(call, "relax.subtract")
        cast, zero = (call, 0.0) if shifted is None else shifted
        if operator_name(cast) != "relax.astype" or tensor_dtype(cast.args[0]) not in _BYTES:
            return None, zero
        return cast.args[0], zero

    def _is_rounded_anew(self, integers: Any) -> bool:
        """Return whether the module rounds floats to these integers, which no other block and no caller sees."""
        call = self._value(integers)
        return (
            isinstance(integers, relax.DataflowVar)
            and tensor_dtype(integers) != self._rounded_to
            and operator_name(call) == "relax.astype"
            and tensor_dtype(call.args[0]) == "float32"
            and self._is_within_bytes(call.args[0])
        )

    def _is_within_bytes(self, floats: Any) -> bool:
        """Return whether floats are whole numbers within limits, as `QuantizeLinear` makes them; other floats a cast would cut off."""
        steps = []
        call = self._value(floats)
        for name in ("minimum", "maximum", "add", "round"):
            if operator_name(call) == f"relax.{name}":
                steps.append(name)
                call = self._value(call.args[0])
        return steps in (["minimum", "maximum", "add", "round"], ["minimum", "maximum", "round"])

    def _round(self, integers: Any, shift: int) -> Any:
        """Return integers of the other type, from the floats that the module rounds."""
        if integers not in self._rounded:
            floats = self._visit(self._known[integers].args[0])
            moved = self._emit(relax.op.add(floats, relax.const(float(shift), "float32")))
            self._rounded[integers] = self._emit(relax.op.astype(moved, self._rounded_to))
        return self._rounded[integers]

    def scaled_when_run(self, value: Any) -> Quantised | None:
        """Return a float tensor that is scaled by a number known at run time only; None if it is not quantised."""
        call, moves = self._before_moves(value)
        if operator_name(call) != "relax.multiply" or not _is_single(call.args[1], call.args[0]):
            return None
        inner = self.shifted(call.args[0])
        return None if inner is None else self._after(moves, replace(inner, scale=call.args[1]))

    def shifted(self, value: Any) -> Quantised | None:
        """Return integers as bytes and their zero point, if they are a difference of the two; None otherwise."""
        call, moves = self._before_moves(value)
        zero = None
        if operator_name(call) == "relax.subtract":
            if not _is_single(call.args[1], call.args[0]):
                return None
            call, zero = self._value(call.args[0]), call.args[1]
        if operator_name(call) != "relax.astype" or tensor_dtype(call.args[0]) not in _BYTES:
            return None
        values = call.args[0]
        data = Quantised(values=lambda: self._visit(values), dtype=tensor_dtype(values), zero=zero)
        return self._after(moves, data)

    def joined(self, value: Any) -> list[tuple[int, Quantised]]:
        """Return the quantised tensors that are joined along the last axis, with their widths; none for any other tensor."""
        call, moves = self._before_moves(value)
        if operator_name(call) != "relax.concat":
            return []
        axis, rank = int(call.attrs.axis or 0), len(call.ty.shape)
        axis += rank if axis < 0 else 0
        for move in reversed(moves):
            if operator_name(move) != "relax.permute_dims":
                return []
            order = [int(number) for number in move.attrs.axes or reversed(range(rank))]
            axis = order.index(axis)
        parts = []
        for part in self._fields(call.args[0]):
            data, shape = self.scaled(part), static_shape(part)
            if data is None or shape is None or axis != rank - 1:
                return []
            for move in reversed(moves):
                shape = tuple(shape[int(number)] for number in move.attrs.axes or reversed(range(rank)))
            parts.append((shape[-1], self._after(moves, data)))
        return parts

    def integers(self, value: Any) -> NDArray[Any] | None:
        """Return constant integers, or the difference of two, as int32; None for anything else."""
        value = self._value(value)
        if isinstance(value, tvm.ir.GenericConst):
            array = value.value.numpy()
            return array.astype(np.int32) if array.dtype.kind in "iu" and array.itemsize <= 4 else None
        name = operator_name(value)
        if name == "relax.astype" and tensor_dtype(value) == "int32":
            return self.integers(value.args[0])
        if name == "relax.subtract" and tensor_dtype(value) == "int32":
            left, right = (self.integers(argument) for argument in value.args)
            return None if left is None or right is None else left - right
        return None

    def _moved(self, call: Any) -> Quantised | None:
        """Return the result of a step on a quantised tensor that can be taken on its integers; None for any other."""
        name = operator_name(call)
        if isinstance(call, relax.TupleGetItem):
            return self._split(call)
        if name == "relax.concat":
            return self._concatenated(call)
        if name in ("relax.nn.relu", "relax.maximum", "relax.minimum"):
            return self._bounded(call)
        is_nearest = name == "relax.image.resize2d" and str(call.attrs.method) == "nearest_neighbor"
        if not is_nearest and name not in _MORE_MOVES | {"relax.nn.pad"}:
            return None
        data = self.scaled(call.args[0])
        if data is None:
            return None
        if name == "relax.nn.pad":
            return self._padded(call, data)
        return self._with(
            data,
            lambda values: tvm.ir.Call(call.op, [values, *map(self._visit, call.args[1:])], call.attrs),
        )

    def _bounded(self, call: Any) -> Quantised | None:
        """Return a quantised tensor cut off at a bound, if that is a step of the scale, or beyond all of them."""
        name = operator_name(call)
        bounded = (None, 0.0) if name == "relax.nn.relu" else self._by_scalar(call, name)
        data = None if bounded is None else self.scaled(call.args[0])
        if bounded is None or data is None:
            return None
        operator = relax.op.minimum if name == "relax.minimum" else relax.op.maximum
        steps, (least, most) = bounded[1] / data.scale + data.zero, data.limits
        if steps >= most if name == "relax.minimum" else steps <= least:
            return data
        if not least <= steps <= most or abs(steps - round(steps)) > _GRID:
            return None
        bound = relax.const(np.array(round(steps), data.dtype), data.dtype)
        return self._with(data, lambda values: operator(values, bound))

    def _padded(self, call: Any, data: Quantised) -> Quantised | None:
        attributes = call.attrs
        steps = float(attributes.pad_value) / data.scale
        if not isfinite(steps):
            return None
        padding, (least, most) = data.zero + round(steps), data.limits
        constant = str(attributes.pad_mode) == "constant"
        if constant and (abs(steps - round(steps)) > _GRID or not least <= padding <= most):
            return None
        widths = [int(width) for width in attributes.pad_width]
        mode = str(attributes.pad_mode)
        return self._with(data, lambda values: relax.op.nn.pad(values, widths, mode, float(padding)))

    def _split(self, item: Any) -> Quantised | None:
        split = self._value(item.tuple_value)
        if operator_name(split) != "relax.split":
            return None
        data = self.scaled(split.args[0])
        if data is None:
            return None

        def part(values: Any) -> Any:
            parts = self._emit(tvm.ir.Call(split.op, [values, *split.args[1:]], split.attrs))
            return relax.TupleGetItem(parts, item.index)

        return self._with(data, part)

    def _concatenated(self, call: Any) -> Quantised | None:
        """Return tensors of one scale and zero point that are joined."""
        parts = [self.scaled(part) for part in self._fields(call.args[0])]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or len({(part.dtype, part.scale, part.zero) for part in known}) != 1:
            return None
        axis = int(call.attrs.axis or 0)
        return replace(
            known[0],
            values=lambda: self._emit(relax.op.concat([part.values() for part in known], axis=axis)),
        )

    def _after(self, moves: Sequence[Any], data: Quantised) -> Quantised:
        """Return a tensor after moves, the last one first."""

        def moved(values: Any) -> Any:
            for move in reversed(moves):
                values = self._emit(tvm.ir.Call(move.op, [values, *move.args[1:]], move.attrs))
            return values

        return replace(data, values=lambda: moved(data.values())) if moves else data

    def _with(self, data: Quantised, step: Callable[[Any], Any]) -> Quantised:
        return replace(data, values=lambda: self._emit(step(data.values())))

    def _before_moves(self, value: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the call whose elements a value has, and the calls that moved them, the last one first."""
        moves = []
        call = self._value(value)
        while operator_name(call) in _MOVES:
            moves.append(call)
            call = self._value(call.args[0])
        return call, tuple(moves)

    def _fields(self, value: Any) -> list[Any]:
        """Return the fields of a tuple; none if they are not known."""
        fields = self._value(value)
        return list(fields.fields) if isinstance(fields, relax.Tuple) else []

    def _by_scalar(self, call: Any, name: str) -> tuple[Any, float] | None:
        """Return the value of the first operand of an operator, and its second operand, a scalar constant; None otherwise."""
        if operator_name(call) != name or not isinstance(call.args[1], tvm.ir.GenericConst):
            return None
        number = call.args[1].value.numpy()
        # A constant of higher rank would raise the rank of the result.
        if number.size != 1 or number.ndim > len(call.args[0].ty.shape):
            return None
        return self._value(call.args[0]), float(number.reshape(()))

    def _value(self, value: Any) -> Any:
        while isinstance(value, relax.Var) and value in self._known:
            value = self._known[value]
        return value


def _is_single(value: Any, other: Any) -> bool:
    """Return whether a value is one number that does not raise the rank of what it is combined with."""
    shape = static_shape(value)
    return shape is not None and prod(shape) == 1 and len(shape) <= len(other.ty.shape)
