"""Vectorise reductions along contiguous elements whose extent no vector divides: the last step of the schedule rules.

LLVM adds floats up in their order, one after the other, unless it is told otherwise. `rfactor` splits a sum into SIMD lanes where
vectors divide the extent; with a tail of 5 of 197 elements it would need a condition that the steps behind it lose. So the
serial loops that the rules left are written out: partial results in the lanes of a vector, their combination, the tail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Op, Range
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import detect_linear_equation

from tunefarm_tuning.tvm.base.tir import REDUCES, is_number, rebuilt, substitute, type_key, uses, walk
from tunefarm_tuning.tvm.default_schedules.stage import Machine

_MIN_EXTENT = 32
_COMBINES = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)


def vectorize_ragged_reductions(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc:
    """Return a kernel with its serial sums, products and extrema along contiguous elements vectorised.

    It is the very same function if it has no such loop. A NaN among the elements can make an extremum forget others, as in the
    serial loop, but not the same ones.
    """
    is_changed = False

    def vectorized(stmt: Any) -> Any:
        nonlocal is_changed
        replacement = _vectorized(stmt, machine) if isinstance(stmt, tirx.For) else None
        is_changed = is_changed or replacement is not None
        return stmt if replacement is None else replacement

    body = rebuilt(func.body, vectorized)
    return func.with_body(body) if is_changed else func


def _vectorized(loop: tirx.For, machine: Machine) -> Any:
    """Return the replacement of a loop; None if it is no serial loop of a reduction along contiguous elements."""
    realize = loop.body
    if loop.kind != tirx.ForKind.SERIAL or loop.annotations or not isinstance(realize, SBlockRealize):
        return None
    if not is_number(loop.min, 0) or not (loop.step is None or is_number(loop.step, 1)):
        return None
    block = realize.block
    extent = int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 0
    along = _reduced_by(realize, loop.loop_var)
    if extent < _MIN_EXTENT or along is None or block.alloc_buffers or block.match_buffers:
        return None
    if not _is_store(block.body) or not isinstance(block.body.value, _COMBINES) or not _starts_neutral(block):
        return None
    term = _term_of(block.body)
    lanes = machine.lanes(str(block.body.buffer.dtype))
    if term is None or lanes < 2 or extent < lanes or not _is_contiguous(term, along):
        return None
    return _written_out(realize, along, term, extent, lanes)


def _written_out(realize: Any, along: Any, term: Any, extent: int, lanes: int) -> Any:
    """Write a reduction: clear lanes, combine whole vectors, fold lanes into the first, store the result, add the tail.

    Args:
        realize: The block of one step, with the values of its variables.
        along: The variable that it reduces over.
        term: The operand that a step combines with its result.
        extent: Steps.
        lanes: Elements of a vector.
    """
    block = realize.block
    store = block.body
    combine = type(store.value)
    index = along.ty.dtype
    zero = tirx.IntImm(index, 0)
    outside = [
        (variable.var, value)
        for variable, value in zip(block.iter_vars, realize.iter_values, strict=True)
        if not variable.var.same_as(along)
    ]

    def at(node: Any, step: Any) -> Any:
        return substitute(node, [*outside, (along, step)])

    sums = tirx.decl_buffer((lanes,), str(store.buffer.dtype), f"{store.buffer.name}_lanes", scope="local")
    indices = [at(index_value, zero) for index_value in store.indices]

    def begin(lane: Any) -> Any:
        return tirx.BufferStore(sums, block.init.value, [lane])

    def vector(step: Any) -> Any:
        def combine_lane(lane: Any) -> Any:
            return tirx.BufferStore(sums, combine(sums[lane], at(term, step * lanes + lane)), [lane])

        return _loop(index, lanes, combine_lane, vector=True)

    def tail(step: Any) -> Any:
        so_far = store.buffer[tuple(indices)]
        return tirx.BufferStore(
            store.buffer, combine(so_far, at(term, step + extent // lanes * lanes)), indices
        )

    body = [
        _loop(index, lanes, begin, vector=True),
        _loop(index, extent // lanes, vector),
        *_folded(sums, lanes, combine, index),
        tirx.BufferStore(store.buffer, sums[zero], indices),
        *([_loop(index, extent % lanes, tail)] if extent % lanes else []),
    ]
    replacement = SBlock(
        [],
        [_region(region, along, extent, at) for region in block.reads],
        [_region(region, along, extent, at) for region in block.writes],
        f"{block.name_hint}_lanes",
        tirx.SeqStmt(body),
        None,
        [sums],
        [],
        block.annotations,
    )
    return SBlockRealize([], tirx.IntImm("bool", 1), replacement)


def _reduced_by(realize: Any, variable: Any) -> Any:
    """Return the block's reduction variable if it has exactly one and no other variable is bound to the same loop."""
    if not is_number(realize.predicate, 1):
        return None
    pairs = list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
    reduced = [(item.var, value) for item, value in pairs if int(item.iter_type) == REDUCES]
    others = [value for item, value in pairs if int(item.iter_type) != REDUCES]
    if len(reduced) != 1 or not reduced[0][1].same_as(variable):
        return None
    if any(uses(value, [variable]) for value in others):
        return None
    return reduced[0][0]


def _is_store(stmt: Any) -> bool:
    return type_key(stmt).endswith("BufferStore")


def _term_of(store: Any) -> Any:
    """Return the operand that a store combines with its own element; None if there is none or the element occurs twice."""
    for element, term in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
        if (
            type_key(element).endswith("TensorLoad")
            and element.source.same_as(store.buffer)
            and len(element.indices) == len(store.indices)
            and _are_equal(element.indices, store.indices)
        ):
            reads_element = any(
                type_key(node).endswith("TensorLoad") and node.source.same_as(store.buffer)
                for node in walk(term)
            )
            return None if reads_element else term
    return None


def _are_equal(left: Any, right: Any) -> bool:
    return all(tvm_ffi.structural_equal(a, b) for a, b in zip(left, right, strict=True))


def _starts_neutral(block: Any) -> bool:
    """Return whether a block starts from the neutral element, so that each lane can start from it."""
    start, store = block.init, block.body
    if start is None or not _is_store(start) or not start.buffer.same_as(store.buffer):
        return False
    dtype = str(store.buffer.dtype)
    neutral = {
        tirx.Add: lambda: tirx.const(0, dtype),
        tirx.Mul: lambda: tirx.const(1, dtype),
        tirx.Max: lambda: tirx.min_value(dtype),
        tirx.Min: lambda: tirx.max_value(dtype),
    }[type(store.value)]()
    return _are_equal([*start.indices, start.value], [*store.indices, neutral])


def _is_contiguous(term: Any, along: Any) -> bool:
    """Return whether every access of a term is contiguous along a variable or invariant, and the term has no condition."""
    for node in walk(term):
        kind = type_key(node)
        if kind.endswith(".Select") or (isinstance(node, Op) and str(node.name).endswith("if_then_else")):
            return False
        if kind.endswith("TensorLoad"):
            *outer, last = [_slope(index, along) for index in node.indices]
            if any(outer) or last not in (0, 1):
                return False
    return True


def _slope(index: Any, along: Any) -> int | None:
    """Return the stride of an index along a variable; -1 if it is not constant."""
    if not any(node.same_as(along) for node in walk(index)):
        return 0
    factors = list(detect_linear_equation(index, [along]))
    return int(factors[0]) if len(factors) == 2 and isinstance(factors[0], int | tirx.IntImm) else -1


def _folded(sums: Any, lanes: int, combine: Any, index: str) -> list[Any]:
    """Return the statements that combine all lanes into the first one."""

    def fold(half: int) -> Any:
        def fold_lane(lane: Any) -> Any:
            return tirx.BufferStore(sums, combine(sums[lane], sums[lane + half]), [lane])

        return _loop(index, half, fold_lane, vector=half > 1)

    return [fold(lanes >> step) for step in range(1, lanes.bit_length())]


def _loop(index: str, extent: int, body: Callable[[Any], Any], *, vector: bool = False) -> Any:
    variable = tirx.Var("lane" if vector else "step", index)
    kind = tirx.ForKind.VECTORIZED if vector else tirx.ForKind.SERIAL
    return tirx.For(variable, tirx.IntImm(index, 0), tirx.IntImm(index, extent), kind, body(variable))


def _region(region: Any, along: Any, extent: int, at: Callable[[Any, Any], Any]) -> Any:
    """Widen the region of a step to the region of all steps."""
    index = along.ty.dtype
    ranges = [
        Range.from_min_extent(
            at(dim.min, tirx.IntImm(index, 0)), dim.extent + (extent - 1 if _slope(dim.min, along) else 0)
        )
        for dim in region.region
    ]
    return tirx.BufferRegion(region.source, ranges)
