"""What a converter of ONNX nodes sees: the block builder, the opset, and a way to convert further nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx


class UnsupportedFormError(ValueError):
    """A node in a form that cannot be converted; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a node is converted.

    Attributes:
        bb: TVM's block builder.
        opset: Of the default domain.
        outputs: How many outputs the node lists.
        convert: Converts another node at this place: operator, inputs, attributes, opset.
    """

    bb: Any
    opset: int
    outputs: int
    convert: Callable[[str, Sequence[Any], dict[str, Any], int], Any]

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Convert a node of this opset with one output."""
        return self.emit(self.convert(operator, inputs, attributes, self.opset))

    def emit(self, expression: Any) -> Any:
        """Bind an expression to a variable, which is then typed; constants and variables stay as they are."""
        if isinstance(expression, tvm.ir.GenericConst | relax.Var):
            return expression
        return self.bb.emit(expression)


def constant(x: Any) -> NDArray[Any] | None:
    """Return the value of a constant; None for what is known at run time only, and for what is left out."""
    return np.asarray(x.value.numpy()) if isinstance(x, tvm.ir.GenericConst) else None


def needed_constant(x: Any, what: str) -> NDArray[Any]:
    """Return the value of a constant.

    Raises:
        UnsupportedFormError: If it is known at run time only.
    """
    value = constant(x)
    if value is None:
        raise UnsupportedFormError(f"its {what} must be a constant")
    return value


def fixed_shape(x: Any) -> tuple[int, ...] | None:
    """Return a tensor's shape; None where it is not known, or is no tensor's."""
    kind = getattr(x, "ty", None)
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    dims = kind.shape.values
    return tuple(int(dim) for dim in dims) if all(isinstance(dim, tirx.IntImm) for dim in dims) else None


def needed_shape(x: Any) -> tuple[int, ...]:
    """Return a tensor's shape.

    Raises:
        UnsupportedFormError: If it depends on values.
    """
    shape = fixed_shape(x)
    if shape is None:
        raise UnsupportedFormError("the shape of its input cannot be known before the model runs")
    return shape


def dtype_of(x: Any) -> str:
    """Return a tensor's dtype, as numpy names it."""
    return str(x.ty.dtype.dtype)


def const(value: Any) -> Any:
    """Return a constant of an array, of its dtype: left to itself, TVM makes 32 bits of 64."""
    array = np.asarray(value)
    return relax.const(array, str(array.dtype))


def full_rank(value: Any, rank: int, dtype: str) -> Any:
    """Return a constant of one element that broadcasts to a rank; TVM's layout rules want the ranks equal."""
    return const(np.full((1,) * rank, value, dtype=dtype))


def text(attributes: dict[str, Any], name: str, default: str) -> str:
    """Return a text attribute."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front.

    Raises:
        UnsupportedFormError: If there is no such axis.
    """
    if not -rank <= axis < rank:
        raise UnsupportedFormError(f"axis {axis} is out of range for {rank} dimensions")
    return axis % rank if rank else 0
