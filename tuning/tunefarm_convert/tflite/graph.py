"""A TFLite file as plain values, without flatbuffers or ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean

DTYPES = frozenset({
    "bool", "float16", "float32", "float64",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
})  # fmt: skip
"""Dtypes of the tensors that are computed."""
COMPLEX_DTYPE = "complex64"
"""Dtype of tensors that are computed as two of real numbers; it may not be that of an input or output of the network."""
ACTIVATION_DTYPES = ("int8", "uint8", "int16")
"""Dtypes of quantised activations. 32-bit integers with a scale are biases only."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quantization:
    """Quantisation: integers mean the real numbers ``(q - zero) * scale``, per tensor, or per index of an axis."""

    scale: NDArray[np.float32]
    zero: NDArray[np.int64]
    axis: int

    def same_as(self, other: Quantization) -> bool:
        """Return whether equal integers mean equal numbers."""
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.zero, other.zero)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tensor:
    """A tensor of the file.

    Attributes:
        name: Name in the file: a stranger's text, perhaps empty or not unique.
        shape: What the interpreter would allocate; dimensions that the file leaves open have a size here too.
        data: The elements of a constant; None for other tensors.
        open_dims: The dimensions whose size the file leaves open.
        variable: Whether the interpreter keeps its elements from one call to the next. They begin as zeros.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    data: NDArray[Any] | None
    quantization: Quantization | None
    open_dims: tuple[int, ...] = ()
    variable: bool = False

    @property
    def is_quantized(self) -> bool:
        return self.quantization is not None and self.dtype in ACTIVATION_DTYPES

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A node: tensors by index (-1 for an omitted input), and the fields of its options table.

    Attributes:
        custom: The options of a custom operator, in a format of its own.
        version: The version of the operator that the file asks for.
    """

    index: int
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    custom: bytes = b""
    version: int = 1

    @property
    def label(self) -> str:
        return f"operator number {self.index}, {clean(self.kind, 60)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph of a file: the first one is the network, others are called by its operators.

    Operators are in the order in which they run.
    """

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def bad_file(message: str, **fields: Any) -> InvalidModelError:
    """Return the error for a file that breaks TFLite's own rules."""
    return InvalidModelError(message, code="invalid-tflite", **fields)
