"""Default schedules, after the rules: sums along contiguous elements whose count no vector divides.

Sums of floats are made in their order, one addition after the other, unless somebody says otherwise. `rfactor` does for
counts that vectors divide; a rest of 5 of 197 elements would be a condition that its further steps lose. So loops that are
still plain here are written out: sums of a vector's lanes, the sum of these, the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Op, Range
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import detect_linear_equation

from tunefarm_tuning.tvm.base.tir import rebuilt, type_key, walk
from tunefarm_tuning.tvm.default_schedules.stage import Machine, replaced

_LEAST = 32
_COMBINES = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)
_REDUCES = 2  # tvm.tirx.IterVar.CommReduce


def reduce_in_lanes(func: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc:
    """Return a scheduled kernel with its plain loops of sums, products and extrema along contiguous elements in lanes.

    Of a NaN the extrema forget as much as in plain loops, but not the same elements.
    """
    found = False

    def changed(stmt: Any) -> Any:
        nonlocal found
        made = _in_lanes(stmt, machine) if isinstance(stmt, tirx.For) else None
        found = found or made is not None
        return stmt if made is None else made

    body = rebuilt(func.body, changed)
    return func.with_body(body) if found else func


def _in_lanes(loop: tirx.For, machine: Machine) -> Any:
    """Return what does a loop's work in lanes; None where the loop is none of a plain reduction."""
    realize = loop.body
    if loop.kind != tirx.ForKind.SERIAL or loop.annotations or not isinstance(realize, SBlockRealize):
        return None
    if not _is_number(loop.min, 0) or not (loop.step is None or _is_number(loop.step, 1)):
        return None
    block = realize.block
    extent = int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 0
    along = _reduced_by(realize, loop.loop_var)
    if extent < _LEAST or along is None or block.alloc_buffers or block.match_buffers:
        return None
    if not _is_store(block.body) or not isinstance(block.body.value, _COMBINES) or not _starts_neutral(block):
        return None
    term = _term_of(block.body)
    lanes = machine.lanes(str(block.body.buffer.dtype))
    if term is None or lanes < 2 or extent < lanes or not _lies_in_order(term, along):
        return None
    return _written_out(realize, along, term, extent, lanes)


def _written_out(realize: Any, along: Any, term: Any, extent: int, lanes: int) -> Any:
    block = realize.block
    store = block.body
    combine = type(store.value)
    index = along.ty.dtype
    zero = tirx.IntImm(index, 0)
    outside = [
        (one.var, value)
        for one, value in zip(block.iter_vars, realize.iter_values, strict=True)
        if not one.var.same_as(along)
    ]

    def at(node: Any, step: Any) -> Any:
        return replaced(node, [*outside, (along, step)])

    sums = tirx.decl_buffer((lanes,), str(store.buffer.dtype), f"{store.buffer.name}_lanes", scope="local")
    place = [at(one, zero) for one in store.indices]

    def begin(lane: Any) -> Any:
        return tirx.BufferStore(sums, block.init.value, [lane])

    def vector(step: Any) -> Any:
        def one(lane: Any) -> Any:
            return tirx.BufferStore(sums, combine(sums[lane], at(term, step * lanes + lane)), [lane])

        return _loop(index, lanes, one, vector=True)

    def rest(step: Any) -> Any:
        own = store.buffer[tuple(place)]
        return tirx.BufferStore(store.buffer, combine(own, at(term, step + extent // lanes * lanes)), place)

    body = [
        _loop(index, lanes, begin, vector=True),
        _loop(index, extent // lanes, vector),
        *_folded(sums, lanes, combine, index),
        tirx.BufferStore(store.buffer, sums[zero], place),
        *([_loop(index, extent % lanes, rest)] if extent % lanes else []),
    ]
    made = SBlock(
        [],
        [_region(one, along, extent, at) for one in block.reads],
        [_region(one, along, extent, at) for one in block.writes],
        f"{block.name_hint}_lanes",
        tirx.SeqStmt(body),
        None,
        [sums],
        [],
        block.annotations,
    )
    return SBlockRealize([], tirx.IntImm("bool", 1), made)


def _reduced_by(realize: Any, variable: Any) -> Any:
    """Return the variable that a block reduces over, if it has one, and that is a loop's and nothing else is."""
    if not _is_number(realize.predicate, 1):
        return None
    pairs = list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
    reduced = [(one.var, value) for one, value in pairs if int(one.iter_type) == _REDUCES]
    others = [value for one, value in pairs if int(one.iter_type) != _REDUCES]
    if len(reduced) != 1 or not reduced[0][1].same_as(variable):
        return None
    if any(node.same_as(variable) for value in others for node in walk(value)):
        return None
    return reduced[0][0]


def _is_store(stmt: Any) -> bool:
    return type_key(stmt).endswith("BufferStore")


def _term_of(store: Any) -> Any:
    """Return what a store combines its own element with; None where it does not."""
    for own, term in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
        if (
            type_key(own).endswith("TensorLoad")
            and own.source.same_as(store.buffer)
            and len(own.indices) == len(store.indices)
            and _are_equal(own.indices, store.indices)
        ):
            reads_own = any(
                type_key(node).endswith("TensorLoad") and node.source.same_as(store.buffer)
                for node in walk(term)
            )
            return None if reads_own else term
    return None


def _are_equal(ones: Any, others: Any) -> bool:
    return all(tvm_ffi.structural_equal(one, other) for one, other in zip(ones, others, strict=True))


def _starts_neutral(block: Any) -> bool:
    """Whether a block starts with what changes nothing, so that each lane can."""
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


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == number


def _lies_in_order(term: Any, along: Any) -> bool:
    """Whether what a term reads lies side by side along a variable, or does not depend on it; without conditions."""
    for node in walk(term):
        kind = type_key(node)
        if kind.endswith(".Select") or (isinstance(node, Op) and str(node.name).endswith("if_then_else")):
            return False
        if kind.endswith("TensorLoad"):
            *outer, last = [_slope(one, along) for one in node.indices]
            if any(outer) or last not in (0, 1):
                return False
    return True


def _slope(index: Any, along: Any) -> int | None:
    if not any(node.same_as(along) for node in walk(index)):
        return 0
    found = list(detect_linear_equation(index, [along]))
    return int(found[0]) if len(found) == 2 and isinstance(found[0], int | tirx.IntImm) else -1


def _folded(sums: Any, lanes: int, combine: Any, index: str) -> list[Any]:
    """Return the steps that leave all lanes combined in the first one."""

    def fold(half: int) -> Any:
        def one(lane: Any) -> Any:
            return tirx.BufferStore(sums, combine(sums[lane], sums[lane + half]), [lane])

        return _loop(index, half, one, vector=half > 1)

    return [fold(lanes >> step) for step in range(1, lanes.bit_length())]


def _loop(index: str, extent: int, body: Callable[[Any], Any], *, vector: bool = False) -> Any:
    variable = tirx.Var("lane" if vector else "step", index)
    kind = tirx.ForKind.VECTORIZED if vector else tirx.ForKind.SERIAL
    return tirx.For(variable, tirx.IntImm(index, 0), tirx.IntImm(index, extent), kind, body(variable))


def _region(region: Any, along: Any, extent: int, at: Callable[[Any, Any], Any]) -> Any:
    """Return what a block of all steps touches of what one of one step does."""
    index = along.ty.dtype
    ranges = [
        Range.from_min_extent(
            at(one.min, tirx.IntImm(index, 0)),
            one.extent + (extent - 1 if _slope(one.min, along) else 0),
        )
        for one in region.region
    ]
    return tirx.BufferRegion(region.source, ranges)
