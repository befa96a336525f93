"""What the graph of a network that computes in bfloat16 needs: arithmetic in float32, each result rounded once.

bfloat16 has two digits: a sum of some hundred terms loses the small ones, and TVM has no kernels for much of the rest
(normalisations, whatever asks for a NaN). So tensors are bfloat16 where they lie in memory, and float32 while they are computed
with, as ONNX's definitions, cuBLAS and tensor cores have it. Conversions fuse with what they are around.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main, tensor_dtype
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.transform.gpu_graph import PRODUCTS, WIDE, wide_product

_NARROW = "bfloat16"
_SCATTERS = ("scatter_elements", "scatter_nd")
_MOVES = frozenset(
    f"relax.{name}"
    for name in (
        *(
            "astype",
            "broadcast_to",
            "call_tir",
            "concat",
            "expand_dims",
            "flatten",
            "flip",
            "gather_elements",
        ),
        *("gather_nd", "layout_transform", "nn.pad", "permute_dims", "repeat", "reshape"),
        *(*_SCATTERS, "shape_of", "split", "squeeze", "stack", "strided_slice", "take"),
        *("tensor_to_shape", "tile", "where"),
    )
)
"""Operators that compute nothing of the numbers that they are given, but ``astype``, which is told what to make, and scatters that combine what meets in one place."""


def wide_arithmetic(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with whatever computes with bfloat16 doing so in float32; unchanged where nothing does."""
    if not any(tensor_dtype(node) == _NARROW for node in walk(mod["main"].body)):
        return mod
    return rewrite_main(mod, _Widener(mod))


@relax.expr_functor.mutator
class _Widener(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.Op) or (call.op.name in _MOVES and not _adds_up(call)):
            return call
        if not any(tensor_dtype(one) == _NARROW for one in call.args):
            return call
        made = tensor_dtype(call)
        if call.op.name in PRODUCTS:
            wide = wide_product(call)
        else:
            wide = tvm.ir.Call(call.op, [self._widened(one) for one in call.args], call.attrs, call.ty_args)
        return relax.op.astype(self.builder_.emit(wide), _NARROW) if made == _NARROW else wide

    def visit_tuple_getitem_(self, item: Any) -> Any:
        found = super().visit_tuple_getitem_(item)
        if tensor_dtype(item) == _NARROW and tensor_dtype(found) == WIDE:
            return relax.op.astype(self.builder_.emit(found), _NARROW)
        return found

    def _widened(self, given: Any) -> Any:
        if tensor_dtype(given) != _NARROW:
            return given
        return self.builder_.emit(relax.op.astype(given, WIDE))


def _adds_up(call: Any) -> bool:
    """Return whether an operator is a scatter that combines numbers, by a sum or the like."""
    scatters = call.op.name.removeprefix("relax.") in _SCATTERS
    return scatters and str(call.attrs.reduction) != "update"
