"""Conditions on the sizes of open dimensions, which a network's nodes set: multiples, least sizes, equal sizes.

Generated code checks no sizes. A call with sizes that break a condition reads elsewhere, divides by zero, or returns something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer, detect_linear_equation

from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.frontend.node_context import NoOneShapeError

MOST_CONDITIONS = 200
"""A network of more conditions is not compiled for all sizes."""
_LARGEST = 1 << 40
_DEEPEST = 40


@dataclass(frozen=True, slots=True)
class Condition:
    """What an expression of the open dimensions has to be.

    Attributes:
        kind: ``"multiple"``, ``"least"`` or ``"equal"``.
        size: The expression.
        of: What it is a multiple of, at least, or equal to: an int, or an expression.
        at: Operator and name of the node that needs it.
    """

    kind: str
    size: Any
    of: Any
    at: tuple[str, str]


class SizeConditions:
    """The conditions that the nodes imported so far set.

    Attributes:
        at: Operator and name of the node whose conditions are noted.
        minima: The smallest counts of dimensions that have one, by the name of their variable.
        maxima: The largest.
        multiples: What counts have to be multiples of.
    """

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._listed: dict[tuple[str, str, str], Condition] = {}
        self._quotients: set[str] = set()
        self.at = ("", "")
        self.minima: dict[str, int] = {}
        self.maxima: dict[str, int] = {}
        self.multiples: dict[str, int] = {}

    def declare(self, variable: tirx.Var) -> None:
        """Make an open dimension known: sizes are positive."""
        ends = (tirx.const(end, "int64") for end in (1, _LARGEST))
        self._analyzer.bind(variable, tvm.ir.Range(*ends))

    def plain(
        self, dimensions: Mapping[str, tuple[str, int]], named: Callable[[str], str]
    ) -> tuple[dict[str, Any], ...]:
        """Return the conditions that are not limits of a single dimension (`minima`, `maxima`, `multiples`) as plain values.

        Args:
            dimensions: As for `plain_size`.
            named: Returns the name that a node has in the file.

        Raises:
            InvalidModelError: unsupported-operator, if a condition cannot be written so.
        """
        listed = []
        for condition in self._listed.values():
            node = f"{named(condition.at[1])} ({clean(condition.at[0], 60)})"
            try:
                size, of = (plain_size(part, dimensions) for part in (condition.size, condition.of))
            except NoOneShapeError as error:
                raise InvalidModelError(f"node {node}: {error}", code="unsupported-operator") from error
            listed.append({"kind": condition.kind, "size": size, "of": of, "node": node})
        return tuple(listed)

    def least(self, size: Any, least: int) -> None:
        """Note that an expression is at least a number."""
        size = self.simplified(size)
        if not _is_int(size) and least <= 1 and str(size) in self._quotients:
            return
        size, least = _without_constants(size, least)
        if _is_int(size):
            self._check(int(size) >= least, f"a size is {int(size)}, but at least {least} is needed")
            return
        if self._analyzer.can_prove(size >= least):
            return
        if isinstance(size, tirx.Min):
            self.least(size.a, least)
            self.least(size.b, least)
            return
        line = _line(size)
        if line is None:
            self._note("least", size, least)
            return
        name, slope, start = line
        if slope > 0:
            self.minima[name] = max(self.minima.get(name, 1), -((start - least) // slope))
        else:
            most = (start - least) // -slope
            self._check(most >= 1, "no size is small enough")
            self.maxima[name] = min(self.maxima.get(name, most), most)

    def multiple(self, dims: Sequence[Any], others: Sequence[Any]) -> Any:
        """Note that the product of sizes is a multiple of a product of others. Return the quotient."""
        count, factors, divisor, divisors = _cancelled(dims, others)
        if divisors:
            over = self.simplified(product_of([divisor, *divisors]))
            size = self.simplified(product_of([count, *factors]))
            self.least(over, 1)
            if not self._analyzer.can_prove(tirx.floormod(size, over) == 0):
                self._note("multiple", size, over)
            return self._quotient(tirx.floordiv(size, over))
        size = self.simplified(product_of(factors))
        quotient = self._quotient(tirx.floordiv(product_of([count, *factors]), divisor))
        if divisor == 1 or (
            not _is_int(size) and self._analyzer.can_prove(tirx.floormod(size, divisor) == 0)
        ):
            return quotient
        if _is_int(size):
            self._check(
                int(size) % divisor == 0, f"{int(size) * count} elements are not a multiple of {divisor}"
            )
            return quotient
        line = _line(size)
        if line is not None and line[2] == 0:
            name, slope, _ = line
            step = divisor // gcd(slope, divisor)
            self.multiples[name] = lcm(self.multiples.get(name, 1), step)
        else:
            self._note("multiple", size, divisor)
        return quotient

    def equal_products(self, dims: Sequence[Any], others: Sequence[Any]) -> None:
        """Note that the products of two lists of sizes are equal."""
        count, factors, other_count, other_factors = _cancelled(dims, others)
        self.equal(product_of([count, *factors]), product_of([other_count, *other_factors]))

    def equal(self, left: Any, right: Any) -> None:
        """Note that two sizes are equal."""
        left, right = self.simplified(left), self.simplified(right)
        difference = self.simplified(left - right)
        if _is_int(difference):
            self._check(int(difference) == 0, f"{left} and {right} are to be equal")
            return
        line = _line(difference)
        if line is None:
            if _is_int(left):
                left, right = right, left
            self._note("equal", left, int(right) if _is_int(right) else right)
            return
        name, slope, start = line
        self._check(start % slope == 0 and -start // slope >= 1, f"{left} and {right} are to be equal")
        only = -start // slope
        self.minima[name] = max(self.minima.get(name, 1), only)
        self.maxima[name] = min(self.maxima.get(name, only), only)

    def simplified(self, size: Any) -> Any:
        """Return a size in short form: an int if it is one."""
        if isinstance(size, int):
            return size
        simple = self._analyzer.simplify(size)
        return int(simple) if isinstance(simple, tirx.IntImm) else simple

    def _quotient(self, quotient: Any) -> Any:
        """Return the quotient of a multiple, which is at least 1."""
        quotient = self.simplified(quotient)
        self._quotients.add(str(quotient))
        return quotient

    def _note(self, kind: str, size: Any, of: Any) -> None:
        self._listed.setdefault((kind, str(size), str(of)), Condition(kind, size, of, self.at))
        if len(self._listed) > MOST_CONDITIONS:
            raise NoOneShapeError(
                f"its nodes set more than {MOST_CONDITIONS} conditions on the sizes of the inputs"
            )

    @staticmethod
    def _check(holds: bool, message: str) -> None:
        if not holds:
            raise NoOneShapeError(f"no size of the open dimensions fits: {message}")


_OPERATIONS = (
    (tirx.Add, "+"),
    (tirx.Sub, "-"),
    (tirx.Mul, "*"),
    (tirx.FloorDiv, "//"),
    (tirx.FloorMod, "%"),
    (tirx.Min, "min"),
    (tirx.Max, "max"),
)


def plain_size(size: Any, dimensions: Mapping[str, tuple[str, int]], depth: int = 0) -> Any:
    """Return an expression as plain values: an int, a dimension's name, or a list of an operation and two of these.

    Args:
        size: The expression. Its variables count multiples of the dimensions' sizes.
        dimensions: Name and multiple of each, by the name of the variable.
        depth: How many expressions it is in.

    Raises:
        NoOneShapeError: If the expression has another operation or a size that only the run knows, or is too deep.
    """
    if depth > _DEEPEST:
        raise NoOneShapeError("a condition on sizes is too long")
    if _is_int(size):
        return int(size)
    if isinstance(size, tirx.Var):
        if str(size.name) not in dimensions:
            raise NoOneShapeError("it depends on a size that only the run knows")
        name, multiple = dimensions[str(size.name)]
        return name if multiple == 1 else ["//", name, multiple]
    for kind, sign in _OPERATIONS:
        if isinstance(size, kind):
            left, right = (plain_size(part, dimensions, depth + 1) for part in (size.a, size.b))
            if sign == "*" and isinstance(size.a, tirx.Var) and isinstance(right, int):
                name, multiple = dimensions[str(size.a.name)]
                if right % multiple == 0:  # as a size is a multiple of it
                    return name if right == multiple else ["*", name, right // multiple]
            return [sign, left, right]
    raise NoOneShapeError("a condition on sizes is not arithmetic of whole numbers")


def size_of_plain(size: Any, variables: Mapping[str, tirx.Var]) -> Any:
    """Return an expression of what `plain_size` returned, which divides by nothing below 1."""
    if isinstance(size, int):
        return tirx.const(size, "int64")
    if isinstance(size, str):
        return variables[size]
    sign, *parts = size
    left, right = (size_of_plain(part, variables) for part in parts)
    if sign in ("//", "%") and not _is_int(right):
        right = tirx.max(right, tirx.const(1, "int64"))
    return next(kind for kind, name in _OPERATIONS if name == sign)(left, right)


def _without_constants(size: Any, least: int) -> tuple[Any, int]:
    """Return an expression and its least value, such that the one given is then at least its own."""
    while hasattr(size, "b") and _is_int(size.b):
        number = int(size.b)
        if isinstance(size, tirx.Add):
            least -= number
        elif isinstance(size, tirx.Sub):
            least += number
        elif isinstance(size, tirx.FloorDiv) and number > 0:
            least *= number
        elif isinstance(size, tirx.Mul) and number > 0:
            least = -(-least // number)
        elif not (isinstance(size, tirx.Max) and number < least):
            break
        size = size.a
    return size, least


def _line(size: Any) -> tuple[str, int, int] | None:
    """Return variable, slope and start of an expression that is a line in one variable; else None."""
    variables = {str(node.name): node for node in walk(size) if isinstance(node, tirx.Var)}
    if len(variables) != 1:
        return None
    ((name, variable),) = variables.items()
    parts = list(detect_linear_equation(size, [variable]))
    if len(parts) != 2 or not all(_is_int(part) for part in parts):
        return None
    slope, start = (int(part) for part in parts)
    return (name, slope, start) if slope else None


def _cancelled(dims: Sequence[Any], others: Sequence[Any]) -> tuple[int, list[Any], int, list[Any]]:
    """Return two products as a number and factors each, without what they have in common."""
    count, factors = _factors(dims)
    other_count, other_factors = _factors(others)
    common = gcd(count, other_count) or 1
    left = []
    for factor in factors:
        same = next(
            (n for n, other in enumerate(other_factors) if tvm_ffi.structural_equal(factor, other)), None
        )
        if same is None:
            left.append(factor)
        else:
            del other_factors[same]
    return count // common, left, other_count // common, other_factors


def _factors(dims: Sequence[Any]) -> tuple[int, list[Any]]:
    number, factors, waiting = 1, [], list(reversed(dims))
    while waiting:
        dim = waiting.pop()
        if _is_int(dim):
            number *= int(dim)
        elif isinstance(dim, tirx.Mul):
            waiting += [dim.b, dim.a]
        else:
            factors.append(dim)
    return number, factors


def product_of(sizes: Sequence[Any]) -> Any:
    """Return the product of sizes, each an int or an expression."""
    result: Any = tirx.const(1, "int64")
    for size in sizes:
        result = result * size
    return result


def _is_int(size: Any) -> bool:
    return isinstance(size, int | tirx.IntImm)
