"""The CPU's instruction for products of bfloat16, as a call that kernels may have in their loops.

LLVM's intrinsic takes vectors of its type ``bfloat``, which TVM 0.27 cannot make: it lowers bfloat16 to 16-bit integers. So a kernel calls a
function of integers, and its code, in LLVM's language, is linked and inlined when the kernel is built.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from tunefarm_tuning.tvm.base.tir import walk

_DOT = "tunefarm_dot_bfloat16_x16"
_IMPORT = "pragma_import_llvm"
# TVM widens every bfloat16 that a call is given to float32. The code takes the widening back, and LLVM drops both.
_CODE = f"""
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)

define linkonce_odr hidden <16 x float> @{_DOT}(<16 x float> %sums, <2 x float> %shared, <32 x float> %own) alwaysinline nounwind willreturn memory(none) {{
  %shared.wide = bitcast <2 x float> %shared to <2 x i32>
  %shared.high = lshr <2 x i32> %shared.wide, splat (i32 16)
  %shared.bits = trunc <2 x i32> %shared.high to <2 x i16>
  %shared.pair = bitcast <2 x i16> %shared.bits to i32
  %shared.first = insertelement <16 x i32> poison, i32 %shared.pair, i64 0
  %shared.all = shufflevector <16 x i32> %shared.first, <16 x i32> poison, <16 x i32> zeroinitializer
  %left = bitcast <16 x i32> %shared.all to <32 x bfloat>
  %own.wide = bitcast <32 x float> %own to <32 x i32>
  %own.high = lshr <32 x i32> %own.wide, splat (i32 16)
  %own.bits = trunc <32 x i32> %own.high to <32 x i16>
  %right = bitcast <32 x i16> %own.bits to <32 x bfloat>
  %added = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %sums, <32 x bfloat> %left, <32 x bfloat> %right)
  ret <16 x float> %added
}}
"""


def dot_bfloat16(sums: Any, shared: Any, own: Any) -> Any:
    """Return 16 sums of float32, to each of which two products are added.

    Args:
        sums: ``float32x16``.
        shared: ``bfloat16x2``: the factors that all sums share.
        own: ``bfloat16x32``: two factors of each sum, side by side.
    """
    return tirx.call_pure_extern("float32x16", _DOT, sums, shared, own)


def link_code(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a lowered kernel with the code of the instruction that it calls, if it calls it."""
    if not any(isinstance(node, tvm.ir.StringImm) and node.value == _DOT for node in walk(func.body)):
        return func
    return func.with_body(tirx.AttrStmt(tirx.const(0, "int32"), _IMPORT, tvm.ir.StringImm(_CODE), func.body))
