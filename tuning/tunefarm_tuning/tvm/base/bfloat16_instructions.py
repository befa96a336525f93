"""The CPU's instruction for products of bfloat16, as a call that kernels may have in their loops.

LLVM's intrinsic takes vectors of its type ``bfloat``, which TVM 0.27 cannot make: it lowers bfloat16 to 16-bit integers. So a kernel calls a
function of integers, and its code, in LLVM's language, is linked and inlined when the kernel is built.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from tunefarm_tuning.tvm.base.tir import walk

_INTRINSICS = {
    16: ("llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>"),
    4: ("llvm.aarch64.neon.bfdot.v4f32.v8bf16", "<4 x float>", "<8 x bfloat>"),
}
"""By the sums that it adds to: LLVM's name for the instruction, the types of the sums and of the factors."""
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
"""How the two shared factors become a vector: a padded input is stored widened, and each CPU narrows it best in another way."""
_IMPORT = "pragma_import_llvm"


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


def dot_bfloat16(sums: Any, shared: Any, own: Any) -> Any:
    """Return sums of float32, to each of which two products are added.

    Args:
        sums: ``float32x16``, or ``float32x4`` for Arm.
        shared: ``bfloat16x2``: the factors that all sums share.
        own: Two factors of each sum, bfloat16, side by side.
    """
    sums_type = sums.ty.dtype
    return tirx.call_pure_extern(str(sums_type), _name(sums_type.lanes), sums, shared, own)


def link_code(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a lowered kernel with the code of the instruction that it calls, if it calls it."""
    called = {str(node.value) for node in walk(func.body) if isinstance(node, tvm.ir.StringImm)}
    for lanes in _INTRINSICS:
        if _name(lanes) in called:
            code = tvm.ir.StringImm(_code(lanes))
            func = func.with_body(tirx.AttrStmt(tirx.const(0, "int32"), _IMPORT, code, func.body))
    return func
