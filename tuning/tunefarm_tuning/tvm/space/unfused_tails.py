"""Loops that were fused for the threads, taken apart again where one of them has a rest.

A loop's rest is compiled apart where its condition can be solved for its variable. One that is the remainder of another
cannot: the loops inside are as long as it says then, and those that are to be vectors do not build.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.ir import Range
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer

from tunefarm_tuning.tvm.base.tir import rebuilt, walk


def unfuse_rests(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel whose parallel loops are in no condition as a remainder: that part is a loop inside."""
    return func.with_body(rebuilt(func.body, _unfused))


def _unfused(loop: Any) -> Any:
    if (
        not isinstance(loop, tirx.For)
        or loop.kind != tirx.ForKind.PARALLEL
        or not isinstance(loop.extent, tirx.IntImm)
    ):
        return loop
    extent = int(loop.extent)
    periods = {found for one in _conditions(loop.body) for found in _periods(one, loop.loop_var)}
    inside = min((one for one in periods if 1 < one < extent and extent % one == 0), default=0)
    if not inside:
        return loop
    dtype = loop.loop_var.ty.dtype
    outer, inner = (tirx.Var(f"{loop.loop_var.name}_{part}", dtype) for part in ("outer", "inner"))
    analyzer = Analyzer()
    analyzer.bind(outer, Range(0, extent // inside))
    analyzer.bind(inner, Range(0, inside))

    def placed(realize: Any) -> Any:
        if not isinstance(realize, SBlockRealize):
            return realize

        def of(value: Any) -> Any:
            # TVM exposes no substitution of its own: this is what an index map does.
            (moved,) = tirx.IndexMap([loop.loop_var], [value], None).map_indices([outer * inside + inner])
            return analyzer.simplify(moved)

        return SBlockRealize([of(one) for one in realize.iter_values], of(realize.predicate), realize.block)

    body = rebuilt(loop.body, placed)
    body = tirx.For(inner, loop.min, tirx.IntImm(dtype, inside), tirx.ForKind.SERIAL, body)
    made = tirx.For(
        outer,
        loop.min,
        tirx.IntImm(dtype, extent // inside),
        loop.kind,
        body,
        None,
        loop.annotations,
        loop.step,
    )
    return _unfused(made)  # another loop with a rest may be in it


def _conditions(stmt: Any) -> Iterator[Any]:
    for node in walk(stmt):
        if isinstance(node, SBlockRealize):
            yield node.predicate


def _periods(condition: Any, variable: Any) -> Iterator[int]:
    """Yield after how many of a variable's values what a condition takes of it starts anew."""
    for node in walk(condition):
        if isinstance(node, tirx.FloorMod) and isinstance(node.b, tirx.IntImm):
            if node.a.same_as(variable):
                yield int(node.b)
            elif isinstance(node.a, tirx.FloorDiv) and node.a.a.same_as(variable):
                yield int(node.b) * int(node.a.b)
