"""How a block of a kernel accesses a tensor: the stride along each loop. Sizes as numbers, for rules that estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.sym import Analyzer, detect_linear_equation

from tunefarm_tuning.tvm.base.tir import REDUCES, nodes_of, substitute, uses, walk

_REPEATS = (2, 4, 8)
_INTERLEAVED = (2, 3, 4)
_MAX_NEAR_EXTENT = 16
_NOMINAL = 251


def nominal_size(size: Any) -> int:
    """Return a size as a number for the rules' estimates.

    A symbolic size counts as a number near to what it is for dimensions of `_NOMINAL`, and has the divisors that it has for any.
    """
    if isinstance(size, int | tirx.IntImm):
        return int(size)
    variables: list[Any] = []
    for node in walk(size):
        if isinstance(node, tirx.Var) and not any(node.same_as(known) for known in variables):
            variables.append(node)
    analyzer = Analyzer()
    numbers = [(variable, tirx.const(_NOMINAL, str(variable.expr_ty().dtype))) for variable in variables]
    value = int(analyzer.simplify(substitute(size, numbers)))
    multiples = analyzer.modular_set(size)
    step, rest = max(1, int(multiples.coeff)), int(multiples.base)
    return step * _next_prime((value - rest) // step) + rest


def _next_prime(number: int) -> int:
    while number > 3 and any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number += 1
    return number


def is_equal(left: Any, right: Any) -> bool:
    """Return whether two sizes or indices are provably equal."""
    if isinstance(left, tirx.IntImm) and isinstance(right, tirx.IntImm):
        return int(left) == int(right)
    return bool(Analyzer().can_prove_equal(left, right))


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A stage's access to a tensor.

    Attributes:
        strides: For each loop, the elements between one iteration and the next; None if that is not constant. Loops in
            `near` have stride 1.
        near: Short loops whose elements lie close together, but not in order: `tvm.base.vector_loads` loads them like
            contiguous ones.
        repeats: For each loop, how many iterations in a row read the same element before the next one; 0 for other orders.
        interleaved: For each loop, how many runs of elements it reads in turns, an element of each; 0 for other orders.
    """

    buffer: str
    dtype: str
    elements: int
    strides: tuple[int | None, ...]
    near: tuple[int, ...]
    repeats: tuple[int, ...] = ()
    interleaved: tuple[int, ...] = ()


def access_of(region: Any, variables: list[Any], analyzer: Any) -> Access:
    """Return how a block accesses a region of a tensor with its variables."""
    index: Any = tirx.const(0, "int64")
    scale: Any = 1
    single = True
    for dim, extent in zip(reversed(list(region.region)), reversed(list(region.source.shape)), strict=True):
        single = single and isinstance(dim.extent, tirx.IntImm) and int(dim.extent) == 1
        index = index + tirx.Cast("int64", dim.min) * scale
        scale = scale * (int(extent) if isinstance(extent, tirx.IntImm) else tirx.Cast("int64", extent))
    index = analyzer.simplify(index)
    strides = [_stride(index, variable.var) if single else None for variable in variables]
    reduces = any(int(variable.iter_type) == REDUCES for variable in variables)
    near = [
        axis
        for axis, variable in enumerate(variables)
        if single and reduces and strides[axis] is None and _is_near(index, variable, analyzer)
    ]

    def orders(order_of: Callable[[Any, Any, Any], int]) -> tuple[int, ...]:
        return tuple(
            order_of(index, variable, analyzer) if single and not reduces and stride is None else 0
            for stride, variable in zip(strides, variables, strict=True)
        )

    return Access(
        buffer=str(region.source.name),
        dtype=str(region.source.dtype),
        elements=prod(nominal_size(dim) for dim in region.source.shape),
        strides=tuple(1 if axis in near else stride for axis, stride in enumerate(strides)),
        near=tuple(near),
        repeats=orders(_repeats),
        interleaved=orders(_interleaved),
    )


def loads_in_order(block: Any) -> bool:
    """Return whether each load of a block reads the next element, or the same, where its last variable is one more.

    Its other indices may be anything else, as those of a gather or of a resizing are.
    """
    variable = block.iter_vars[-1].var
    return _in_order(block, _bounds_of(block), variable, variable)


def loads_vectors(block: Any, lanes: int) -> bool:
    """Return whether `loads_in_order` holds for each run of `lanes` elements: the rows of attention's heads, one behind the other, are such.

    The lanes divide the extent of the last variable.
    """
    last, analyzer = block.iter_vars[-1], _bounds_of(block)
    dtype = str(last.var.expr_ty().dtype)
    run, lane = tirx.Var("run", dtype), tirx.Var("lane", dtype)
    analyzer.bind(run, tvm.ir.Range(0, tirx.floordiv(last.dom.extent, lanes)))
    analyzer.bind(lane, tvm.ir.Range(0, tirx.const(lanes, dtype)))
    return _in_order(block, analyzer, lane, run * lanes + lane)


def _bounds_of(block: Any) -> Analyzer:
    analyzer = Analyzer()
    for each in block.iter_vars:
        analyzer.bind(each.var, tvm.ir.Range(0, each.dom.extent))
    return analyzer


def _in_order(block: Any, analyzer: Any, variable: Any, value: Any) -> bool:
    """Return whether each load of a block, whose last variable has a value, reads the next element, or the same, where `variable` is one more."""
    last = block.iter_vars[-1].var
    for load in nodes_of(block.body, tvm.ir.TensorLoad):
        stride = 0
        scale: int | None = 1
        for given, extent in zip(reversed(load.indices), reversed(load.source.shape), strict=True):
            index = given
            if uses(given, [last]):
                index = analyzer.simplify(given if value is last else substitute(given, [(last, value)]))
            if uses(index, [variable]):
                step = _stride(index, variable)
                if step is None or scale is None:
                    return False
                stride += step * scale
            scale = scale * int(extent) if isinstance(extent, tirx.IntImm) and scale is not None else None
        if stride not in (0, 1):
            return False
    return True


def _stride(index: Any, variable: Any) -> int | None:
    factors = list(detect_linear_equation(index, [variable]))
    return int(factors[0]) if len(factors) == 2 and isinstance(factors[0], int | tirx.IntImm) else None


def _is_near(index: Any, variable: Any, analyzer: Any) -> bool:
    """Return whether the elements of a short loop lie within the length of two vectors."""
    extent = nominal_size(variable.dom.extent)
    if extent > _MAX_NEAR_EXTENT:
        return False
    distances = [
        analyzer.simplify(_at(index, variable.var, step) - _at(index, variable.var, 0))
        for step in range(extent)
    ]
    if not all(isinstance(distance, tirx.IntImm) for distance in distances):
        return False
    offsets = [int(distance) for distance in distances]
    return max(offsets) - min(offsets) < 2 * extent


def _repeats(index: Any, variable: Any, analyzer: Any) -> int:
    """Return how many iterations in a row read one element, where the next ones read the next; 0 if they do not."""
    extent, loop = nominal_size(variable.dom.extent), variable.var
    for times in _REPEATS:
        first, last = (
            analyzer.simplify(substitute(index, [(loop, loop * times + lane)])) for lane in (0, times - 1)
        )
        if extent % times == 0 and _stride(first, loop) == 1 and is_equal(first, last):
            return times
    return 0


def _interleaved(index: Any, variable: Any, analyzer: Any) -> int:
    """Return how many runs a loop reads one element of in turn, as if it interleaved planes of channels into pixels; 0 if it does not."""
    extent, loop = nominal_size(variable.dom.extent), variable.var
    for runs in _INTERLEAVED:
        if extent % runs == 0 and extent > runs:
            step = tirx.Var("step", str(loop.expr_ty().dtype))
            analyzer.bind(step, tvm.ir.Range(0, extent // runs))
            turns = (analyzer.simplify(substitute(index, [(loop, step * runs + run)])) for run in range(runs))
            if all(_stride(turn, step) == 1 for turn in turns):
                return runs
    return 0


def _at(index: Any, variable: Any, value: int) -> Any:
    number = tirx.const(value, str(variable.expr_ty().dtype))
    return substitute(index, [(variable, number)])
