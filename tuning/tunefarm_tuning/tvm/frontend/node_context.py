"""The context of a converter, and helpers to read tensors, constants and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx


class Conditions(Protocol):
    """Conditions on sizes: `size_conditions.SizeConditions`."""

    def least(self, size: Any, least: int) -> None:
        """Note that an expression is at least a number."""

    def multiple(self, dims: Sequence[Any], others: Sequence[Any]) -> Any:
        """Note that the product of sizes is a multiple of a product of others. Return the quotient."""

    def equal_products(self, dims: Sequence[Any], others: Sequence[Any]) -> None:
        """Note that the products of two lists of sizes are equal."""

    def equal(self, left: Any, right: Any) -> None:
        """Note that two sizes are equal."""


class Sizes(Protocol):
    """Tensors whose elements are known expressions of symbolic dimensions: `symbolic_sizes.SymbolicSizes`."""

    def known(self, x: Any) -> NDArray[Any] | None:
        """Return the elements of a tensor, each an int or an expression; None if they are not known."""

    def bound(self, bound: Any, size: Any) -> Any:
        """Return a bound of a slice along a dimension of a size, counted from the front and within it."""

    @property
    def conditions(self) -> Conditions:
        """What the nodes need the sizes to be."""


class UnsupportedFormError(ValueError):
    """A node in a form that cannot be converted; the message says which."""


class NoOneShapeError(UnsupportedFormError):
    """A node of open dimensions whose result has a shape for some sizes only; for multiples of a number it may have one for all."""


class EmptyMeanError(UnsupportedFormError):
    """A node that averages no elements: with the sizes that were given, layers before it leave none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """The context in which a node is converted.

    Attributes:
        opset: Opset of the default domain.
        convert: Converts another node here, given its operator, inputs, attributes and opset. The operator of the node itself means
            TVM's converter.
    """

    bb: Any
    opset: int
    outputs: int
    sizes: Sizes
    convert: Callable[[str, Sequence[Any], dict[str, Any], int], Any]

    def node(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Convert a node of this opset with one output."""
        return self.emit(self.convert(operator, inputs, attributes, self.opset))

    def emit(self, expression: Any) -> Any:
        """Bind an expression to a variable, which is then typed; constants and variables stay as they are."""
        if isinstance(expression, tvm.ir.GenericConst | relax.Var):
            return expression
        return self.bb.emit(expression)


Converter = Callable[[NodeContext, Sequence[Any], dict[str, Any]], Any]
"""Takes the context of a node, its inputs (None for an omitted one) and its attributes. Returns the node's value; None to leave
it to TVM's converter."""


def constant_value(x: Any) -> NDArray[Any] | None:
    """Return the value of a constant; None for a tensor that is known only at run time, and for an omitted input."""
    return np.asarray(x.value.numpy()) if isinstance(x, tvm.ir.GenericConst) else None


def needed_constant(x: Any, name: str) -> NDArray[Any]:
    """Return the value of a constant, which messages call by `name`.

    Raises:
        UnsupportedFormError: If it is known at run time only.
    """
    value = constant_value(x)
    if value is None:
        raise UnsupportedFormError(f"its {name} must be a constant")
    return value


def fixed_shape(x: Any) -> tuple[int, ...] | None:
    """Return a tensor's shape; None if it is not known, or `x` is no tensor."""
    kind = getattr(x, "ty", None)
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    dims = kind.shape.values
    return tuple(int(dim) for dim in dims) if all(isinstance(dim, tirx.IntImm) for dim in dims) else None


def has_known_shape(kind: Any) -> bool:
    """Return whether all sizes are numbers, or expressions of open dimensions."""
    if isinstance(kind, tvm.ir.TupleType):
        return all(has_known_shape(field) for field in kind.fields)
    return not isinstance(kind, relax.TensorType) or isinstance(kind.shape, relax.ShapeExpr)


def has_fixed_shape(kind: Any) -> bool:
    """Return whether all sizes are numbers."""
    if isinstance(kind, tvm.ir.TupleType):
        return all(has_fixed_shape(field) for field in kind.fields)
    if isinstance(kind, relax.TensorType):
        return isinstance(kind.shape, relax.ShapeExpr) and all(
            isinstance(dim, tirx.IntImm) for dim in kind.shape.values
        )
    return True


def symbolic_shape(x: Any) -> tuple[Any, ...] | None:
    """Return a tensor's shape, with ints and expressions as sizes; None if it is not known."""
    kind = getattr(x, "ty", None)
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    return tuple(int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in kind.shape.values)


def is_symbolic_tensor(x: Any) -> bool:
    """Return whether a tensor has a symbolic dimension."""
    shape = symbolic_shape(x)
    return shape is not None and not all(isinstance(size, int) for size in shape)


def needed_shape(x: Any) -> tuple[int, ...]:
    """Return a tensor's shape.

    Raises:
        UnsupportedFormError: If it depends on values.
    """
    return _known(fixed_shape(x))


def needed_open_shape(x: Any) -> tuple[Any, ...]:
    """Return a tensor's shape, with ints and expressions as sizes.

    Raises:
        UnsupportedFormError: If it depends on values.
    """
    return _known(symbolic_shape(x))


def _known(shape: tuple[Any, ...] | None) -> tuple[Any, ...]:
    if shape is None:
        raise UnsupportedFormError("the shape of its input cannot be known before the model runs")
    return shape


def rank_of(x: Any) -> int:
    """Return a tensor's number of dimensions.

    Raises:
        UnsupportedFormError: If it depends on values.
    """
    if not isinstance(x.ty, relax.TensorType) or x.ty.ndim < 0:
        raise UnsupportedFormError("the rank of its input cannot be known before the model runs")
    return int(x.ty.ndim)


def dtype_of(x: Any) -> str:
    """Return a tensor's dtype, as numpy names it."""
    return str(x.ty.dtype.dtype)


def const(value: Any) -> Any:
    """Return an array as a constant of its dtype; by default, TVM narrows 64 bits to 32."""
    array = np.asarray(value)
    return relax.const(array, str(array.dtype))


def int64s(values: Any) -> Any:
    """Return a constant of 64-bit integers, as ONNX has shapes and indices."""
    return const(np.array(values, dtype=np.int64))


def full_rank(value: Any, rank: int, dtype: str) -> Any:
    """Return a constant of one element with a given rank: TVM's layout rules want operands of equal rank."""
    return const(np.full((1,) * rank, value, dtype=dtype))


def text(attributes: Mapping[str, Any], name: str, default: str) -> str:
    """Return a text attribute."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def axis_of(axis: int, rank: int) -> int:
    """Return an axis, perhaps counted from the end, as counted from the front.

    Raises:
        UnsupportedFormError: If there is no such axis.
    """
    if not -rank <= axis < rank:
        raise UnsupportedFormError(f"axis {axis} is out of range for {rank} dimensions")
    return axis % rank if rank else 0
