"""Sizes: conditions on those of open dimensions, and shapes in words. Needs only Python 3.11.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}
_KINDS = {
    "multiple": "has to be a multiple of",
    "least": "has to be at least",
    "equal": "has to be equal to",
}
_DEEPEST = 50


class SizeChecks:
    """Conditions that several dimensions have to meet together. Concurrency: any thread.

    Attributes:
        conditions: Each ``{"kind", "size", "of", "node"}``. ``size``, an expression, is a ``"multiple"`` of, at ``"least"`` or
            ``"equal"`` to the expression ``of``, as a node of the network needs. An expression is an int, the name of a dimension,
            or a list of an operation (``+ - * // % min max``) and two expressions.
    """

    def __init__(self, conditions: Sequence[Mapping[str, Any]]) -> None:
        self.conditions = tuple(conditions)

    def why_not(self, sizes: Mapping[str, int]) -> str:
        """Return which condition sizes of the dimensions, by name, do not meet; empty if they meet all."""
        return next((why for condition in self.conditions if (why := _why_broken(condition, sizes))), "")


def condition_text(condition: Mapping[str, Any]) -> str:
    """Return a condition in words."""
    return f"{_formula(condition['size'])} {_KINDS[condition['kind']]} {_formula(condition['of'])}"


def is_condition(condition: Mapping[str, Any], dimensions: Mapping[str, Any]) -> bool:
    """Return whether plain values are a condition on dimensions of these names."""
    return (
        condition["kind"] in _KINDS
        and isinstance(condition["node"], str)
        and all(_is_expression(condition[key], dimensions) for key in ("size", "of"))
    )


def shape_text(shape: Sequence[int | None]) -> str:
    """Return a shape for people: a dimension that depends on values is a question mark."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _why_broken(condition: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    kind, texts = condition["kind"], [_formula(condition[key]) for key in ("size", "of")]
    try:
        size, of = (value_of(condition[key], sizes) for key in ("size", "of"))
        holds = size % of == 0 if kind == "multiple" else size >= of if kind == "least" else size == of
        computed = [
            f"{text} is {value}" for text, value in zip(texts, (size, of), strict=True) if text != str(value)
        ]
    except ZeroDivisionError:
        holds, computed = False, ["a size is divided by 0"]
    if holds:
        return ""
    names = sorted(names_in(condition["size"]) | names_in(condition["of"]))
    given = ", ".join(f"{name!r} = {sizes[name]}" for name in names)
    return (
        f"with the dimension{'s' if len(names) > 1 else ''} {given}, {' and '.join(computed)}, but "
        f"{condition_text(condition)} for node {condition['node']}"
    )


def _is_expression(size: Any, dimensions: Mapping[str, Any], depth: int = 0) -> bool:
    if isinstance(size, list):
        return (
            depth < _DEEPEST
            and len(size) == 3
            and size[0] in _OPERATIONS
            and all(_is_expression(part, dimensions, depth + 1) for part in size[1:])
        )
    return type(size) is int or (isinstance(size, str) and size in dimensions)


def value_of(size: Any, sizes: Mapping[str, int]) -> int:
    """Return the value of an expression."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return sizes[size]
    return _OPERATIONS[size[0]](value_of(size[1], sizes), value_of(size[2], sizes))


def names_in(size: Any) -> set[str]:
    """Return the dimensions in an expression."""
    if isinstance(size, list):
        return names_in(size[1]) | names_in(size[2])
    return {size} if isinstance(size, str) else set()


def _formula(size: Any, inside: bool = False) -> str:
    if not isinstance(size, list):
        return str(size)
    sign, *parts = size
    if sign in ("min", "max"):
        return f"{sign}({', '.join(map(_formula, parts))})"
    formula = f" {sign} ".join(_formula(part, inside=True) for part in parts)
    return f"({formula})" if inside else formula
