"""Converters of Fourier transforms, as products with constant matrices of cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te

from tunefarm_tuning.tvm.frontend.node_context import (
    NodeContext,
    UnsupportedFormError,
    axis_of,
    const,
    constant_value,
    dtype_of,
    full_rank,
    needed_constant,
    needed_shape,
)

_MAX_ELEMENTS = 1 << 26
_SINCE_AXIS_IS_INPUT = 20


def convert_dft(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `DFT`. The transformed axis and the one of real and imaginary parts become the rows of one product."""
    x, shape = inputs[0], needed_shape(inputs[0])
    rank, parts = len(shape), shape[-1]
    if context.opset >= _SINCE_AXIS_IS_INPUT:
        given = inputs[2] if len(inputs) > 2 else None
        axis = -2 if given is None else int(needed_constant(given, "axis").reshape(-1)[0])
    else:
        axis = attributes.get("axis", 1)
    axis = axis_of(axis, rank)
    inverse, onesided = bool(attributes.get("inverse", 0)), bool(attributes.get("onesided", 0))
    length_input = inputs[1] if len(inputs) > 1 else None
    if length_input is not None:
        length = int(needed_constant(length_input, "dft_length").reshape(-1)[0])
    else:
        length = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    rows = length // 2 + 1 if inverse and onesided else length
    x = _resized(context, x, axis, rows)
    order = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    x = context.emit(relax.op.permute_dims(x, order))
    moved = needed_shape(x)
    matrix = fourier_matrix(length, parts, inverse=inverse, onesided=onesided, dtype=dtype_of(x))
    x = context.emit(relax.op.reshape(x, (*moved[:-2], rows * parts)))
    y = context.emit(relax.op.matmul(x, const(matrix)))
    kept = 1 if inverse and onesided else 2
    y = context.emit(relax.op.reshape(y, (*moved[:-2], matrix.shape[1] // kept, kept)))
    return relax.op.permute_dims(y, [int(i) for i in np.argsort(order)])


def convert_stft(context: NodeContext, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert `STFT`. A constant window is multiplied into the matrix."""
    signal, step_input, window, length_input = [*inputs, None, None][:4]
    shape = needed_shape(signal)
    batch, size, parts = shape if len(shape) == 3 else (*shape, 1)
    step = int(needed_constant(step_input, "frame_step").reshape(-1)[0])
    if length_input is not None:
        length = int(needed_constant(length_input, "frame_length").reshape(-1)[0])
    elif window is not None:
        length = needed_shape(window)[0]
    else:
        raise UnsupportedFormError("it has neither a window nor a frame_length")
    if step < 1 or not 1 <= length <= size:
        raise UnsupportedFormError(f"frames of {length} with step {step} do not fit a signal of {size}")
    count = (size - length) // step + 1
    onesided = bool(attributes.get("onesided", 1)) and parts == 1
    dtype = dtype_of(signal)
    matrix = fourier_matrix(length, parts, inverse=False, onesided=onesided, dtype="float64")
    known = constant_value(window)
    if known is not None:
        matrix = matrix * np.repeat(known.astype(np.float64), parts)[:, None]

    def frames(x: Any) -> Any:
        shape = (batch, count, length, parts)
        return te.compute(
            shape, lambda b, f, i, part: x[b, f * step + i, part], name="frames", tag="injective"
        )

    x = context.emit(relax.op.reshape(signal, (batch, size, parts)))
    x = context.bb.emit_te(frames, x, primfunc_name_hint="frames")
    if window is not None and known is None:
        x = context.emit(relax.op.multiply(x, context.emit(relax.op.reshape(window, (1, 1, length, 1)))))
    x = context.emit(relax.op.reshape(x, (batch, count, length * parts)))
    y = context.emit(relax.op.matmul(x, const(matrix.astype(dtype))))
    return relax.op.reshape(y, (batch, count, matrix.shape[1] // 2, 2))


def fourier_matrix(length: int, parts: int, *, inverse: bool, onesided: bool, dtype: str) -> NDArray[Any]:
    """Return the matrix that a row of a signal is multiplied by for its transform.

    Args:
        length: Of the transform.
        parts: 1 for a real signal, 2 for pairs of real and imaginary parts.
        inverse: Whether it is the inverse transform.
        onesided: Half of the frequencies, since the others mirror them: those that come out, or of the inverse go in.
        dtype: Of the matrix.

    Returns:
        ``[rows x parts, columns x 2]``; of the one-sided inverse, whose result is real, ``[rows x parts, columns]``.

    Raises:
        UnsupportedFormError: The matrix would be too large, or `parts` is neither.
    """
    if parts not in (1, 2) or length < 1:
        raise UnsupportedFormError(f"a transform of {length} elements of {parts} parts is not supported")
    half = length // 2 + 1
    rows, columns = (half if inverse and onesided else length), (half if onesided and not inverse else length)
    if rows * columns * parts * 2 > _MAX_ELEMENTS:
        raise UnsupportedFormError(
            f"a transform of {length} elements is too long: it is a product with a matrix, of at most "
            f"{_MAX_ELEMENTS} elements"
        )
    # The product is reduced first: a large angle has lost its digits.
    steps = np.outer(np.arange(rows, dtype=np.int64), np.arange(columns, dtype=np.int64)) % length
    angle = 2 * math.pi * steps / length
    cosine, sine = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    matrix = np.empty((rows, parts, columns, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cosine, sine
    if parts == 2:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -sine, cosine
    if inverse:
        matrix /= length
    if inverse and onesided:
        mirrored = np.full(rows, 2.0)
        mirrored[0] = 1
        if length % 2 == 0:
            mirrored[-1] = 1
        matrix = matrix[..., :1] * mirrored[:, None, None, None]
    return np.ascontiguousarray(matrix.reshape(rows * parts, -1).astype(dtype))


def _resized(context: NodeContext, x: Any, axis: int, size: int) -> Any:
    """Return a tensor cut, or padded with zeros, to a size along an axis."""
    shape = needed_shape(x)
    if shape[axis] > size:
        return context.emit(relax.op.strided_slice(x, [axis], [0], [size]))
    if shape[axis] < size:
        zeros = [size - shape[i] if i == axis else shape[i] for i in range(len(shape))]
        filling = context.emit(relax.op.broadcast_to(full_rank(0, len(shape), dtype_of(x)), zeros))
        return context.emit(relax.op.concat([x, filling], axis))
    return x
