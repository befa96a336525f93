"""The regions of reductions, scatters and sorts: recognise their operator or their order of numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tunefarm_convert.stablehlo.program import Block, Operation, TensorType, UnsupportedFormError
from tunefarm_tuning.core.array_file import numpy_dtype

_OPERATORS = {
    "stablehlo.add": "add",
    "stablehlo.multiply": "multiply",
    "stablehlo.maximum": "maximum",
    "stablehlo.minimum": "minimum",
    "stablehlo.and": "and",
    "stablehlo.or": "or",
}
_OF_BOOLEANS = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def operator_of(block: Block) -> str:
    """Return a region's operator; ``"assign"`` if it returns the second of its two arguments.

    Raises:
        UnsupportedFormError: It is something else.
    """
    if len(block.arguments) == 2 and len(block.returned) == 1:
        (a, type_), (b, _) = block.arguments
        if not block.operations and block.returned == (b,):
            return "assign"
        if len(block.operations) == 1:
            (operation,) = block.operations
            name = _OPERATORS.get(operation.kind)
            if (
                name
                and sorted(operation.operands) == sorted((a, b))
                and block.returned == (operation.results[0][0],)
            ):
                boolean = isinstance(type_, TensorType) and type_.dtype == "bool"
                return _OF_BOOLEANS.get(name, name) if boolean else name
    kinds = ", ".join(sorted({operation.kind for operation in block.operations})) or "nothing"
    raise UnsupportedFormError(f"its inner program ({kinds}) is not exactly one of {', '.join(_OPERATORS)}")


def captured(block: Block) -> set[int]:
    """Return the values from outside that a region uses."""
    inside = {number for number, _ in block.arguments}
    inside.update(number for operation in block.operations for number, _ in operation.results)
    used = {operand for operation in block.operations for operand in operation.operands} | set(block.returned)
    return used - inside


def neutral(reducer: str, dtype: str) -> Any:
    """Return a reducer's neutral number."""
    kind = numpy_dtype(dtype)
    if reducer in ("maximum", "minimum"):
        below = reducer == "maximum"
        if dtype == "bool":
            return not below
        if kind.kind in "iu":
            return np.iinfo(kind).min if below else np.iinfo(kind).max
        return -np.inf if below else np.inf
    return {"add": 0, "multiply": 1, "and": dtype == "bool" or -1, "or": 0}[reducer]


def outcome(
    block: Block, arguments: Sequence[Any], outer: Mapping[int, Any], *, zero: bool = False
) -> list[Any]:
    """Run a region that only compares and selects.

    Such a region is known once its results are known for every order of its arguments, among each other and with zero and
    NaN where it may compare with those (`zero`). `outer` has the numbers from outside that it uses, by the number of their value.

    Raises:
        UnsupportedFormError: It does something else.
    """
    known: dict[int, Any] = {number: _own(value, zero=zero) for number, value in outer.items()}
    known.update({number: value for (number, _), value in zip(block.arguments, arguments, strict=True)})
    for operation in block.operations:
        known[operation.results[0][0]] = _compared(operation, known, zero=zero)
    return [known[number] for number in block.returned]


def _compared(operation: Operation, known: Mapping[int, Any], *, zero: bool) -> Any:
    if operation.kind == "stablehlo.constant":
        return _own(np.asarray(operation.attributes["value"]).reshape(-1)[0], zero=zero)
    if any(operand not in known for operand in operation.operands):
        raise UnsupportedFormError("its inner program uses values from outside of it")
    values = [known[operand] for operand in operation.operands]
    if operation.kind == "stablehlo.compare":
        return _order(operation, values)
    if operation.kind == "stablehlo.select":
        return values[1] if values[0] else values[2]
    if operation.kind in ("stablehlo.and", "stablehlo.or", "stablehlo.not", "stablehlo.xor"):
        if not all(isinstance(value, bool | np.bool_) for value in values):
            raise UnsupportedFormError("its inner program computes with bits")
        if operation.kind == "stablehlo.not":
            return not values[0]
        if operation.kind == "stablehlo.xor":
            return bool(values[0]) != bool(values[1])
        return min(values) if operation.kind == "stablehlo.and" else max(values)
    raise UnsupportedFormError(
        f"its inner program holds {operation.kind}; tunefarm supports those that compare and choose"
    )


def _own(number: Any, *, zero: bool) -> Any:
    """Return a constant of a region; only zero and NaN are allowed."""
    if not zero or not (number == 0 or np.isnan(number)):
        raise UnsupportedFormError("its inner program compares with a number of its own")
    return number


def _order(operation: Operation, values: Sequence[Any]) -> bool:
    a, b = values
    if operation.attributes.get("compare_type") == "TOTALORDER":
        a, b = _rank(a), _rank(b)
    return bool(_COMPARISONS[operation.attributes["comparison_direction"]](a, b))


def _rank(number: Any) -> tuple[int, float, int]:
    """Return a key for the total order of floats: negative NaN, -infinity to -0, 0 to infinity, NaN."""
    negative = bool(np.signbit(number))
    if np.isnan(number):
        return (-1 if negative else 1, 0.0, 0)
    return (0, float(number), 0 if negative else 1)
