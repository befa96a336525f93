"""Values of integer tensors that a network computes from symbolic dimensions, as exporters do for `Reshape`.

TVM's importer leaves most of this arithmetic to the run, where the shapes are then unknown. Here it is done at import, with
expressions of the dimensions as elements. A tensor that is used otherwise is computed at run time as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.sym import Analyzer

from tunefarm_tuning.tvm.frontend.node_context import const, constant_value
from tunefarm_tuning.tvm.frontend.size_conditions import SizeConditions, product_of

_MAX_ELEMENTS = 64
_TO_THE_END = (1 << 31) - 1
_INTEGERS = ("int32", "int64")


class SymbolicSizes:
    """The tensors of a network whose elements are known expressions of its symbolic dimensions.

    Attributes:
        conditions: What the nodes imported so far need the sizes to be.
    """

    def __init__(self, bb: Any) -> None:
        self._bb = bb
        self._values: dict[Any, NDArray[Any]] = {}
        self._analyzer = Analyzer()
        self.conditions = SizeConditions()

    def known(self, x: Any) -> NDArray[Any] | None:
        """Return the elements of a tensor, each an int or an expression; None if they are not known."""
        if isinstance(x, relax.Var):
            return self._values.get(x)
        value = constant_value(x)
        if value is None or value.dtype.kind not in "iub" or value.size > _MAX_ELEMENTS:
            return None
        return _of_ints(value)

    def is_symbolic(self, x: Any) -> bool:
        """Return whether a tensor's elements are expressions of symbolic dimensions."""
        return isinstance(x, relax.Var) and x in self._values

    def bound(self, bound: Any, size: Any) -> Any:
        """Return a bound of a slice along a dimension of a size, counted from the front and within it.

        Where the two depend on one dimension, the network is imported for the sizes of it of which the bound is within: a table of
        512 positions, of which a network takes as many as its input has, makes 512 the maximum.
        """
        if isinstance(bound, int):
            if bound >= _TO_THE_END:
                return size
            if isinstance(size, int):
                return max(0, min(bound + size if bound < 0 else bound, size))
            if bound < 0:
                self.conditions.least(size, -bound)
                return self._simplified(size + bound)
            self.conditions.least(size, bound)
            return bound
        self.conditions.least(bound, 0)
        excess = self.conditions.simplified(size - bound)
        if not isinstance(excess, int):
            self.conditions.least(excess, 0)
            return bound
        return bound if excess >= 0 else size

    def fold(self, operator: str, inputs: Sequence[Any], attributes: dict[str, Any], outputs: int) -> Any:
        """Return the value of a node that computes with sizes; None if it does anything else."""
        if operator in ("Shape", "Size"):
            return self._of_shape(operator, inputs[0], attributes)
        rule = _RULES.get(operator)
        if rule is None or not any(self.is_symbolic(x) for x in inputs):
            return None
        values = [self.known(x) if x is not None else None for x in inputs]
        if any(value is None and x is not None for value, x in zip(values, inputs, strict=True)):
            return None
        own = {name: value for name, value in attributes.items() if name != "tvm_custom"}
        if operator in ("Div", "Mod"):
            self._divides(*values)
        try:
            result = rule(values, own, outputs)
        except (ValueError, IndexError, TypeError, KeyError):
            return None
        if isinstance(result, list):
            return relax.Tuple([self._emit(part) for part in result])
        return None if result is None else self._emit(result)

    def _divides(self, numbers: Any, divisors: Any) -> None:
        """Note that a division of sizes is one of positive numbers: of others, ONNX rounds otherwise."""
        for number in numbers.flat:
            self.conditions.least(number, 0)
        for divisor in divisors.flat:
            self.conditions.least(divisor, 1)

    def _of_shape(self, operator: str, x: Any, attributes: dict[str, Any]) -> Any:
        shape = getattr(x.ty, "shape", None) if isinstance(x, relax.Expr) else None
        if not isinstance(shape, relax.ShapeExpr):
            return None
        dims = list(shape.values)
        if operator == "Size":
            return self._emit(np.array(product_of(dims), dtype=object))
        return self._emit(_array(dims[attributes.get("start", 0) : attributes.get("end", len(dims))]))

    def _emit(self, values: NDArray[Any]) -> Any:
        """Return a tensor of these elements: a constant, or a variable that is noted."""
        simple = np.empty(values.shape, dtype=object)
        for index in np.ndindex(values.shape):
            simple[index] = self._simplified(values[index])
        if all(isinstance(size, int) for size in simple.flat):
            return const(simple.astype(np.int64))
        tensor = self._bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr(list(simple.flat))))
        if simple.ndim != 1:
            tensor = self._bb.emit(relax.op.reshape(tensor, list(simple.shape)))
        self._values[tensor] = simple
        return tensor

    def _simplified(self, size: Any) -> Any:
        if isinstance(size, int | np.integer | bool | np.bool_):
            return int(size)
        simple = self._analyzer.simplify(size)
        return int(simple) if isinstance(simple, tirx.IntImm) else simple


def _of_ints(value: NDArray[Any]) -> NDArray[Any]:
    result = np.empty(value.shape, dtype=object)
    for index in np.ndindex(value.shape):
        result[index] = int(value[index])
    return result


def _array(values: Sequence[Any]) -> NDArray[Any]:
    result = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        result[index] = value
    return result


def _elementwise(operation: Callable[[Any, Any], Any]) -> Callable[..., NDArray[Any]]:
    def rule(values: Sequence[Any], _attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
        result: NDArray[Any] = values[0]
        for other in values[1:]:
            left, right = np.broadcast_arrays(result, other)
            result = np.empty(left.shape, dtype=object)
            for index in np.ndindex(left.shape):
                result[index] = operation(left[index], right[index])
        return result

    return rule


def _negative(values: Sequence[Any], _attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    result = np.empty(values[0].shape, dtype=object)
    for index in np.ndindex(result.shape):
        result[index] = -values[0][index]
    return result


def _divide(left: Any, right: Any) -> Any:
    # ONNX truncates; sizes are not negative
    return left // right if isinstance(left, int) and isinstance(right, int) else tirx.floordiv(left, right)


def _same(values: Sequence[Any], _attributes: dict[str, Any], _outputs: int) -> NDArray[Any] | None:
    return values[0]  # type: ignore[no-any-return]


def _cast(values: Sequence[Any], attributes: dict[str, Any], _outputs: int) -> NDArray[Any] | None:
    return values[0] if attributes["to"] in (6, 7) else None  # int32, int64


def _axes(values: Sequence[Any], attributes: dict[str, Any]) -> list[int] | None:
    if len(values) > 1 and values[1] is not None:
        return [int(axis) for axis in values[1].reshape(-1)]
    axes = attributes.get("axes")
    return None if axes is None else [int(axis) for axis in axes]


def _concat(values: Sequence[Any], attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    return np.concatenate(values, axis=attributes["axis"])


def _gather(values: Sequence[Any], attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    taken = np.take(values[0], values[1].astype(np.int64), axis=attributes.get("axis", 0))
    if isinstance(taken, np.ndarray):
        return taken
    result = np.empty((), dtype=object)
    result[()] = taken
    return result


def _slice(values: Sequence[Any], attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    if len(values) > 1:
        starts, ends = (values[n].astype(np.int64).reshape(-1) for n in (1, 2))
        axes, steps = (
            values[n].reshape(-1) if len(values) > n and values[n] is not None else None for n in (3, 4)
        )
    else:
        starts, ends = np.array(attributes["starts"]), np.array(attributes["ends"])
        axes, steps = attributes.get("axes"), None
    part: NDArray[Any] = values[0]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = number if axes is None else int(axes[number])
        step = 1 if steps is None else int(steps[number])
        along: list[Any] = [slice(None)] * part.ndim
        along[axis] = slice(int(start), int(end), step)
        part = part[tuple(along)]
    return part


def _squeeze(values: Sequence[Any], attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    axes = _axes(values, attributes)
    squeezed: NDArray[Any] = np.squeeze(values[0], tuple(axes) if axes is not None else None)
    return squeezed


def _transpose(values: Sequence[Any], attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    return np.transpose(values[0], attributes.get("perm"))


def _unsqueeze(values: Sequence[Any], attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    axes = _axes(values, attributes)
    if axes is None:
        raise ValueError
    return np.expand_dims(values[0], tuple(axes))


def _reshape(values: Sequence[Any], _attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    return values[0].reshape([int(size) for size in values[1].reshape(-1)])  # type: ignore[no-any-return]


def _equal(values: Sequence[Any], _attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    left, right = np.broadcast_arrays(*values)
    result = np.empty(left.shape, dtype=object)
    for index in np.ndindex(left.shape):
        result[index] = int(_are_equal(left[index], right[index]))
    return result


def _are_equal(left: Any, right: Any) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    number = left if isinstance(left, int) else right
    if isinstance(number, int) and number < 0:
        return False  # no size is negative
    if Analyzer().can_prove_equal(left, right):
        return True
    raise ValueError


def _where(values: Sequence[Any], _attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    chosen: NDArray[Any] = np.where(values[0].astype(bool), values[1], values[2])
    return chosen


def _reduce_product(values: Sequence[Any], attributes: dict[str, Any], _outputs: int) -> NDArray[Any]:
    if values[0].ndim != 1:
        raise ValueError
    product = np.array(product_of(list(values[0])), dtype=object)
    return product.reshape(1) if attributes.get("keepdims", 1) else product


def _split(values: Sequence[Any], attributes: dict[str, Any], outputs: int) -> list[NDArray[Any]]:
    sizes = values[1] if len(values) > 1 and values[1] is not None else attributes.get("split")
    ends = np.cumsum([int(size) for size in sizes])[:-1] if sizes is not None else outputs
    return np.split(values[0], ends, axis=attributes.get("axis", 0))


_RULES: dict[str, Callable[..., Any]] = {
    "Add": _elementwise(lambda left, right: left + right),
    "Sub": _elementwise(lambda left, right: left - right),
    "Mul": _elementwise(lambda left, right: left * right),
    "Div": _elementwise(_divide),
    "Mod": _elementwise(lambda left, right: tirx.floormod(tvm.tirx.const(0, "int64") + left, right)),
    "Max": _elementwise(lambda left, right: tvm.tirx.max(tvm.tirx.const(0, "int64") + left, right)),
    "Min": _elementwise(lambda left, right: tvm.tirx.min(tvm.tirx.const(0, "int64") + left, right)),
    "Neg": _negative,
    "Cast": _cast,
    "Concat": _concat,
    "Equal": _equal,
    "Gather": _gather,
    "Identity": _same,
    "ReduceProd": _reduce_product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Each takes the elements of its inputs, the node's attributes, and its number of outputs."""
