"""Inputs that are bound to values: the values as arrays of the inputs' element types and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.frontend.onnx.binding import input_dtype, real_inputs, refuse_unknown_names
from tunefarm_tuning.workload.binding import Binding, Value, value_shape


def bound_arrays(graph: onnx.GraphProto, binding: Binding) -> dict[str, NDArray[Any]]:
    """Return the arrays of the inputs that are bound to values, by name.

    A single number fills an input of any fixed shape; an open dimension is then 1.

    Raises:
        InvalidModelError: unknown-input, bad-value or unsupported-dtype.
    """
    inputs = real_inputs(graph)
    refuse_unknown_names(inputs, binding.values, "value")
    arrays = {}
    for value in inputs:
        if value.name in binding.values:
            if len(binding.values) == len(inputs):
                raise _bad_value(
                    value.name,
                    "no input would remain, so there would be nothing to tune; leave the network's data inputs open",
                )
            arrays[value.name] = _array(value, binding.values[value.name], binding.shapes.get(value.name))
    return arrays


def _array(value: onnx.ValueInfoProto, given: Value, given_shape: Sequence[int] | None) -> NDArray[Any]:
    dtype = input_dtype(value)
    own_shape = value_shape(given) or ()
    shape = _shape(value, own_shape, given_shape)
    array = _converted(value.name, np.array(given, dtype=object), dtype)
    return np.array(np.broadcast_to(array, shape))


def _shape(
    value: onnx.ValueInfoProto, own_shape: tuple[int, ...], given_shape: Sequence[int] | None
) -> tuple[int, ...]:
    """Return the shape of a bound input; `own_shape` is that of the value, `given_shape` one that the caller gave besides."""
    tensor = value.type.tensor_type
    sizes: list[int | None] | None = None
    if tensor.HasField("shape"):
        sizes = [dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim]
    if given_shape is not None:
        shape = tuple(given_shape)
        fits = sizes is None or (
            len(sizes) == len(shape)
            and all(size in (None, own) for size, own in zip(sizes, shape, strict=True))
        )
        if not fits or own_shape not in ((), shape):
            raise _wrong_shape(value.name, own_shape or shape, sizes)
        return shape
    if sizes is None:
        return own_shape
    if not own_shape:
        return tuple(size or 1 for size in sizes)
    if len(sizes) != len(own_shape) or any(
        size not in (None, own) for size, own in zip(sizes, own_shape, strict=True)
    ):
        raise _wrong_shape(value.name, own_shape, sizes)
    return own_shape


def _converted(name: str, values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return Python's numbers as an array of a dtype, none changed by more than the rounding of floats."""
    kinds = {type(item) for item in values.reshape(-1)}
    if dtype == "bool":
        if kinds - {bool}:
            raise _bad_value(name, "the input is boolean; write true or false")
        return values.astype(np.bool_)
    if bool in kinds:
        raise _bad_value(name, f"the input is {dtype}; write a number, not true or false")
    if dtype.startswith("float"):
        with np.errstate(over="ignore"):
            array = values.astype(np.float64).astype(dtype)
        if not np.isfinite(array).all():
            raise _bad_value(
                name, f"a number is too large for {dtype}, whose largest is {np.finfo(dtype).max:.6g}"
            )
        return array
    if float in kinds:
        raise _bad_value(name, f"the input is {dtype}; write whole numbers, without a decimal point")
    ends = np.iinfo(dtype)
    low, high = min(values.reshape(-1)), max(values.reshape(-1))
    if low < ends.min or high > ends.max:
        wrong = low if low < ends.min else high
        raise _bad_value(
            name, f"{wrong} is out of range: the input is {dtype}, from {ends.min} to {ends.max}"
        )
    return values.astype(dtype)


def _wrong_shape(name: str, shape: Sequence[int], sizes: list[int | None] | None) -> InvalidModelError:
    wanted = "[" + ", ".join("?" if size is None else str(size) for size in sizes or ()) + "]"
    return _bad_value(
        name,
        f"its shape is {list(shape)}, but the input's is {wanted}; give one number, or lists of that shape",
    )


def _bad_value(name: str, why: str) -> InvalidModelError:
    return InvalidModelError(
        f"the value given for input '{clean(name, 60)}' cannot be bound: {why}",
        code="bad-value",
        input=clean(name),
    )
