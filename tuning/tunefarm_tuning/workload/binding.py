"""`Binding`: what a caller fixes of a network that its file leaves open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean

Value: TypeAlias = "bool | int | float | tuple[Value, ...]"
"""A number, or numbers in nested tuples: the shape of the tuples is the tensor's."""

MAX_VALUE_ELEMENTS = 4096
"""Maximum number of elements of a bound value: more is data, not a setting."""
_MAX_RANK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One fixed set of shapes and values of a network's inputs. Whether the network has such inputs is not known here.

    Attributes:
        shapes: Shapes by input name, of inputs with dimensions that the file leaves open.
        values: Values by input name. Such an input becomes a constant of the network, and is no input any more.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.shapes or self.values)

    def to_json(self) -> dict[str, Any]:
        """Return ``{"shapes", "values"}``; values are numbers and nested lists."""
        return {
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "values": {name: value_to_json(value) for name, value in self.values.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote. Both members may be missing: releases before wrote no values."""
        return cls.of(data.get("shapes"), data.get("values"))

    @classmethod
    def of(cls, shapes: Mapping[str, Any] | None = None, values: Mapping[str, Any] | None = None) -> Self:
        """Return the binding of what a caller gives: sequences of sizes; numbers, nested sequences of them, or arrays.

        Raises:
            InvalidInputError: bad-value.
        """
        return cls(
            shapes={
                str(name): tuple(_plain_size(size) for size in shape)
                for name, shape in (shapes or {}).items()
            },
            values={str(name): read_value(str(name), value) for name, value in (values or {}).items()},
        )


def read_value(name: str, value: Any) -> Value:
    """Return a value in plain Python: a number, or nested tuples of equal lengths.

    Raises:
        InvalidInputError: bad-value: not a number, not finite, ragged, or larger than `MAX_VALUE_ELEMENTS`.
    """
    plain = _plain_value(name, value.tolist() if hasattr(value, "tolist") else value, _MAX_RANK)
    shape = value_shape(plain)
    if shape is None:
        raise _bad_value(
            name, "its rows have different lengths; write a tensor as equal lists, like [[1,2],[3,4]]"
        )
    if math.prod(shape) > MAX_VALUE_ELEMENTS:
        raise _bad_value(
            name,
            f"it has {math.prod(shape)} elements; at most {MAX_VALUE_ELEMENTS} can be bound: leave the input open, or "
            "store the tensor in the model",
        )
    return plain


def value_shape(value: Value) -> tuple[int, ...] | None:
    """Return the shape of a value: ``()`` of a number; None if its rows differ."""
    if not isinstance(value, tuple):
        return ()
    inner = {value_shape(item) for item in value}
    if len(inner) > 1 or None in inner:
        return None
    return (len(value), *(next(iter(inner), None) or ()))


def value_to_json(value: Value) -> Any:
    """Return a value as JSON has it: tuples become lists."""
    return [value_to_json(item) for item in value] if isinstance(value, tuple) else value


def _plain_value(name: str, value: Any, rank: int) -> Value:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if rank == 0:
            raise _bad_value(name, f"it has more than {_MAX_RANK} dimensions")
        if len(value) > MAX_VALUE_ELEMENTS:
            raise _bad_value(name, f"it has {len(value)} elements; at most {MAX_VALUE_ELEMENTS} can be bound")
        if not value:
            raise _bad_value(name, "it is empty; give at least one number")
        return tuple(_plain_value(name, item, rank - 1) for item in value)
    if isinstance(value, bool):
        return value
    if hasattr(value, "__index__"):
        number = int(value.__index__())
        if not -(1 << 63) <= number < 1 << 64:
            raise _bad_value(name, f"{clean(str(value), 40)} does not fit into 64 bits")
        return number
    if isinstance(value, float) or hasattr(value, "__float__"):
        number_ = float(value)
        if not math.isfinite(number_):
            raise _bad_value(name, f"{number_} is not finite; a bound value must be a finite number")
        return number_
    raise _bad_value(
        name,
        f"{clean(str(value), 40)!r} is not a number; write a number, true, false, or a list of them, like [1,2]",
    )


def _bad_value(name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"the value of input '{clean(name, 60)}' cannot be bound: {why}", code="bad-value", input=clean(name)
    )


def _plain_size(size: Any) -> Any:
    """Return a size as an int, NumPy's ints too; anything else as text, which the child refuses."""
    return size.__index__() if hasattr(size, "__index__") and not isinstance(size, bool) else str(size)
