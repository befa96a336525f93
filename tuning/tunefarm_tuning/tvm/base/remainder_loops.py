"""Keep LLVM 22 from vectorising loops over remainders, which it gets wrong.

In ``for i in range(64): y[i] = x[i % 8]`` its loop vectoriser takes the addresses of ``x`` for consecutive ones: of four vectors of eight elements it reads
the first, and then what lies behind ``x``. Where `i` counts whole periods, the loop becomes two, without a remainder; elsewhere the
remainder goes through a function that LLVM cannot look into.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tunefarm_tuning.tvm.base.tir import is_number, loop_with, nodes_of, substitute, uses, with_llvm_code

_OPAQUE = "tunefarm_opaque_"
_TYPES = {"int32": "i32", "int64": "i64"}
_REMAINDERS = (tirx.FloorMod, tirx.Mod)
_KINDS = (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL)


def without_remainder_loops(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a lowered kernel without scalar loops over whose variable an address has a remainder."""
    if not nodes_of(func.body, _REMAINDERS):
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.For, _without_remainder))
    if body.same_as(func.body):
        return func
    func = func.with_body(body)
    called = {str(node.value) for node in nodes_of(body, tvm.ir.StringImm)}
    for dtype, kind in _TYPES.items():
        if _OPAQUE + dtype in called:
            func = with_llvm_code(func, _opaque_code(_OPAQUE + dtype, kind))
    return func


def _opaque_code(name: str, kind: str) -> str:
    return f"""
define linkonce_odr hidden {kind} @{name}({kind} %value) alwaysinline nounwind willreturn memory(none) {{
  %hidden = call {kind} asm "", "=r,0"({kind} %value)
  ret {kind} %hidden
}}
"""


def _without_remainder(loop: Any) -> Any:
    # LLVM leaves loops with vectors as they are.
    if loop.kind not in _KINDS or nodes_of(loop.body, tirx.Ramp):
        return loop
    remainders = _remainders(loop.body, loop.loop_var)
    if not remainders:
        return loop
    period = min((int(node.b) for node in remainders if isinstance(node.b, tirx.IntImm)), default=0)
    extent = int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 0
    if loop.kind == tirx.ForKind.SERIAL and is_number(loop.min, 0) and extent and period > 1:
        periods = _in_periods(loop, extent // period, period) if extent % period == 0 else None
        if periods is not None and not any(
            _remainders(periods.body.body, variable) for variable in (periods.loop_var, periods.body.loop_var)
        ):
            return periods
    return _hidden(loop)


def _remainders(body: Any, variable: Any) -> list[Any]:
    """Return the remainders that depend on a variable, in the addresses of loads and stores."""
    remainders = [
        node
        for access in nodes_of(body, (tvm.ir.TensorLoad, tirx.BufferStore))
        for index in access.indices
        for node in nodes_of(index, _REMAINDERS)
    ]
    depending = _depending(body, variable) if remainders else []
    return [node for node in remainders if uses(node.a, depending)]


def _depending(body: Any, variable: Any) -> list[Any]:
    """Return a variable, and those that are bound to values that depend on it."""
    depending = [variable]
    bindings = nodes_of(body, tirx.Bind)
    for _ in bindings:
        more = [
            bind.var for bind in bindings if not uses(bind.var, depending) and uses(bind.value, depending)
        ]
        if not more:
            break
        depending += more
    return depending


def _in_periods(loop: Any, periods: int, period: int) -> Any:
    """Return a loop as one over whole periods around one over the steps of a period."""
    dtype = str(loop.loop_var.ty.dtype)
    outer, inner = (tirx.Var(f"{loop.loop_var.name}_{name}", dtype) for name in ("periods", "within"))
    zero, steps, counts = (tirx.const(number, dtype) for number in (0, period, periods))
    analyzer = Analyzer()
    analyzer.bind(outer, tvm.ir.Range(zero, counts))
    analyzer.bind(inner, tvm.ir.Range(zero, steps))
    body = substitute(loop.body, [(loop.loop_var, outer * steps + inner)])
    simplified = tvm_ffi.structural_map(
        body, ((tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod), analyzer.simplify)
    )
    within = tirx.For(inner, zero, steps, tirx.ForKind.SERIAL, simplified)
    return tirx.For(outer, zero, counts, tirx.ForKind.SERIAL, within, loop.thread_binding, loop.annotations)


def _hidden(loop: Any) -> Any:
    """Return a loop whose remainders LLVM cannot see the numbers of."""
    depending = _depending(loop.body, loop.loop_var)

    def hidden(node: Any) -> Any:
        dtype = str(node.a.expr_ty().dtype)
        if dtype not in _TYPES or not uses(node.a, depending):
            return node
        return type(node)(tirx.call_pure_extern(dtype, f"{_OPAQUE}{dtype}", node.a), node.b)

    return loop_with(loop, body=tvm_ffi.structural_map(loop.body, (_REMAINDERS, hidden)))
