"""The CPU's instructions for products of bfloat16 and for rounding to it, as calls that kernels may have in their loops.

LLVM's intrinsic takes vectors of its type ``bfloat``, which TVM 0.27 cannot make: it lowers bfloat16 to 16-bit integers. So a kernel calls a
function of integers, and its code, in LLVM's language, is linked and inlined when the kernel is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tunefarm_tuning.tvm.base.tir import nodes_of, with_llvm_code

_INTRINSICS = {
    16: ("llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>"),
    4: ("llvm.aarch64.neon.bfdot.v4f32.v8bf16", "<4 x float>", "<8 x bfloat>"),
}
"""By the sums that it adds to: LLVM's name for the instruction, the types of the sums and of the factors."""
_ODD = ", ".join(f"i32 {number}" for number in range(1, 16, 2))
_MATRIX = "tunefarm_matrix_bfloat16"
_MATRIX_INTRINSIC = "llvm.aarch64.neon.bfmmla"
_SHARED = {
    16: """  %shared.wide = bitcast <2 x float> %shared to <2 x i32>
  %shared.high = lshr <2 x i32> %shared.wide, splat (i32 16)
  %shared.bits = trunc <2 x i32> %shared.high to <2 x i16>
  %shared.pair = bitcast <2 x i16> %shared.bits to i32
  %shared.first = insertelement <16 x i32> poison, i32 %shared.pair, i64 0
  %shared.all = shufflevector <16 x i32> %shared.first, <16 x i32> poison, <16 x i32> zeroinitializer
  %left = bitcast <16 x i32> %shared.all to <32 x bfloat>""",
    4: """  %shared.halves = bitcast <2 x float> %shared to <4 x i16>
  %shared.bits = shufflevector <4 x i16> %shared.halves, <4 x i16> poison, <4 x i32> <i32 1, i32 3, i32 1, i32 3>
  %shared.pairs = bitcast <4 x i16> %shared.bits to <2 x i32>
  %shared.all = shufflevector <2 x i32> %shared.pairs, <2 x i32> poison, <4 x i32> zeroinitializer
  %left = bitcast <4 x i32> %shared.all to <8 x bfloat>""",
}
"""How the two shared factors become a vector: what a kernel computes in bfloat16 is stored widened, and each CPU narrows it best in another way."""
_ROUND = "tunefarm_round_bfloat16_x"
_ROUNDS = frozenset({"avx512bf16", "bf16"})
"""LLVM's names of the features with an instruction that rounds: of x86, of Arm."""
_LEAST_ROUNDED = 4


def _name(lanes: int) -> str:
    return f"tunefarm_dot_bfloat16_x{lanes}"


def _code(lanes: int) -> str:
    """Return the function's code. TVM widens every bfloat16 that a call is given to float32; it takes that back, and LLVM drops both."""
    intrinsic, sums, factors = _INTRINSICS[lanes]
    pairs = 2 * lanes
    return f"""
declare {sums} @{intrinsic}({sums}, {factors}, {factors})

define linkonce_odr hidden {sums} @{_name(lanes)}({sums} %sums, <2 x float> %shared, <{pairs} x float> %own) alwaysinline nounwind willreturn memory(none) {{
{_SHARED[lanes]}
  %own.wide = bitcast <{pairs} x float> %own to <{pairs} x i32>
  %own.high = lshr <{pairs} x i32> %own.wide, splat (i32 16)
  %own.bits = trunc <{pairs} x i32> %own.high to <{pairs} x i16>
  %right = bitcast <{pairs} x i16> %own.bits to {factors}
  %added = call {sums} @{intrinsic}({sums} %sums, {factors} %left, {factors} %right)
  ret {sums} %added
}}
"""


def _matrix_code() -> str:
    """Return the function's code: the high halves of two rows become one vector by a single shuffle."""
    return f"""
declare <4 x float> @{_MATRIX_INTRINSIC}(<4 x float>, <8 x bfloat>, <8 x bfloat>)

define linkonce_odr hidden <4 x float> @{_MATRIX}(<4 x float> %sums, <4 x float> %first, <4 x float> %second, <8 x float> %own) alwaysinline nounwind willreturn memory(none) {{
  %first.halves = bitcast <4 x float> %first to <8 x i16>
  %second.halves = bitcast <4 x float> %second to <8 x i16>
  %rows = shufflevector <8 x i16> %first.halves, <8 x i16> %second.halves, <8 x i32> <{_ODD}>
  %left = bitcast <8 x i16> %rows to <8 x bfloat>
  %own.wide = bitcast <8 x float> %own to <8 x i32>
  %own.high = lshr <8 x i32> %own.wide, splat (i32 16)
  %own.bits = trunc <8 x i32> %own.high to <8 x i16>
  %right = bitcast <8 x i16> %own.bits to <8 x bfloat>
  %added = call <4 x float> @{_MATRIX_INTRINSIC}(<4 x float> %sums, <8 x bfloat> %left, <8 x bfloat> %right)
  ret <4 x float> %added
}}
"""


def matrix_bfloat16(sums: Any, rows: Sequence[Any], weights: Any) -> Any:
    """Return sums of two rows and two results, to each of which four products are added; Arm's alone.

    Args:
        sums: ``float32x4``.
        rows: Both rows' factors, ``bfloat16x4`` each.
        weights: Four factors of each of two results, bfloat16, side by side.
    """
    return tirx.call_pure_extern(str(sums.ty.dtype), _MATRIX, sums, *rows, weights)


def dot_bfloat16(sums: Any, shared: Any, weights: Any) -> Any:
    """Return sums of float32, to each of which two products are added.

    Args:
        sums: ``float32x16``, or ``float32x4`` for Arm.
        shared: ``bfloat16x2``: the factors that all sums share.
        weights: Two factors of each sum, bfloat16, side by side.
    """
    sums_type = sums.ty.dtype
    return tirx.call_pure_extern(str(sums_type), _name(sums_type.lanes), sums, shared, weights)


def round_by_instruction(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a lowered kernel whose vectors of float32 are rounded to bfloat16 by the CPU's instruction, if it has one.

    TVM 0.27 rounds by five operations on integers, which make a NaN of some mantissas infinite. x86's instruction takes
    denormal numbers for zero, as that for products does.
    """
    target = (func.attrs or {}).get("target")
    if target is None or str(target.kind.name) != "llvm":
        return func

    @cache
    def has_instruction() -> bool:
        features = tvm_ffi.get_global_func("target.llvm_get_cpu_features")(target)
        return not _ROUNDS.isdisjoint(map(str, features))

    def by_instruction(cast: Any) -> Any:
        value = _rounded_value(cast)
        if value is None or not has_instruction():
            return cast
        lanes = tvm.DataType(str(cast.expr_ty().dtype)).lanes
        return tirx.call_pure_extern(f"uint16x{lanes}", f"{_ROUND}{lanes}", value)

    body = tvm_ffi.structural_map(func.body, (tirx.Cast, by_instruction))
    return func if body.same_as(func.body) else func.with_body(body)


def _rounded_value(cast: Any) -> Any:
    """Return the vector of which TVM's operations for a cast to bfloat16 make these bits; None if these are other operations."""
    dtype = tvm.DataType(str(cast.expr_ty().dtype))
    if dtype.lanes < _LEAST_ROUNDED or dtype.with_lanes(1) != "uint16":
        return None
    bits = getattr(getattr(cast.value, "a", None), "a", None)
    value = next(iter(getattr(bits, "args", ())), None)
    if value is None or str(value.expr_ty().dtype) != f"float32x{dtype.lanes}":
        return None
    return value if tvm_ffi.structural_equal(cast, _as_tvm_rounds(value, dtype.lanes)) else None


def _as_tvm_rounds(value: Any, lanes: int) -> Any:
    def all_lanes(number: int) -> Any:
        return tirx.Broadcast(tirx.const(number, "uint32"), lanes)

    bits = tirx.reinterpret(f"uint32x{lanes}", value)
    odd = tirx.bitwise_and(tirx.shift_right(bits, all_lanes(16)), all_lanes(1))
    return tirx.Cast(f"uint16x{lanes}", tirx.shift_right(bits + (odd + all_lanes(0x7FFF)), all_lanes(16)))


def _rounding_code(lanes: int) -> str:
    return f"""
define linkonce_odr hidden <{lanes} x i16> @{_ROUND}{lanes}(<{lanes} x float> %value) alwaysinline nounwind willreturn memory(none) {{
  %rounded = fptrunc <{lanes} x float> %value to <{lanes} x bfloat>
  %bits = bitcast <{lanes} x bfloat> %rounded to <{lanes} x i16>
  ret <{lanes} x i16> %bits
}}
"""


def link_code(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a lowered kernel with the code of the instructions that it calls, if it calls some."""
    called = {str(node.value) for node in nodes_of(func.body, tvm.ir.StringImm)}
    codes: dict[str, Callable[[], str]] = {
        **{_name(lanes): partial(_code, lanes) for lanes in _INTRINSICS},
        _MATRIX: _matrix_code,
    }
    for name in called:
        if name.startswith(_ROUND):
            codes[name] = partial(_rounding_code, int(name.removeprefix(_ROUND)))
    for name, make_code in codes.items():
        if name in called:
            func = with_llvm_code(func, make_code())
    return func
