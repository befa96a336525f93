"""Do the arithmetic of 16-bit floats in float32, and round every result once.

bfloat16 has two digits: a sum of some hundred terms loses the small ones, and TVM has no kernels for much of the rest
(normalisations, operators that ask for a NaN). So tensors are bfloat16 in memory, and float32 while they are computed with, as ONNX
defines it and cuBLAS and tensor cores do it. Conversions fuse with the operators around them.

Sums of float16 are float32 as well, as in cuBLAS, cuDNN and ONNX Runtime: a sum of some thousand products in float16 has two digits.
Tensor cores add up in float32 at the same speed. Most CPUs have no float16 arithmetic, and would convert each term back and forth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_calls, rewrite_main, tensor_dtype
from tunefarm_tuning.tvm.base.tir import parts, walk

_WIDE = "float32"
_PRODUCTS: dict[str, Callable[..., Any]] = {
    "relax.matmul": relax.op.matmul,
    "relax.nn.conv1d": relax.op.nn.conv1d,
    "relax.nn.conv2d": relax.op.nn.conv2d,
    "relax.nn.conv3d": relax.op.nn.conv3d,
    "relax.nn.conv1d_transpose": relax.op.nn.conv1d_transpose,
    "relax.nn.conv2d_transpose": relax.op.nn.conv2d_transpose,
}
"""Operators whose accumulator type can be chosen."""
_SUMS = {
    f"relax.{name}"
    for name in (
        *("sum", "mean", "variance", "std", "cumsum", "nn.softmax", "nn.log_softmax"),
        *("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.adaptive_avg_pool2d"),
    )
}
"""Operators that accumulate in the type of their input. Normalisations widen it themselves."""
_SCATTERS = ("scatter_elements", "scatter_nd")
_DATA_MOVEMENT = frozenset(
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
"""Operators that compute nothing with the elements; ``astype`` states its type, and scatters may combine elements (`_combines`)."""


def compute_bfloat16_in_float32(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with all arithmetic on bfloat16 done in float32; unchanged if there is none."""
    if not any(tensor_dtype(node) == "bfloat16" for node in walk(mod["main"].body)):
        return mod
    return rewrite_main(mod, _Bfloat16Widener(mod))


def add_up_float16_in_float32(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with sums of float16 accumulated in float32 and rounded at the end."""
    return rewrite_calls(mod, _add_up_in_float32)


@relax.expr_functor.mutator
class _Bfloat16Widener(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        name = operator_name(call)
        if not name or (name in _DATA_MOVEMENT and not _combines(call)):
            return call
        if not any(tensor_dtype(argument) == "bfloat16" for argument in call.args):
            return call
        dtype = tensor_dtype(call)
        if name in _PRODUCTS:
            wide = _wide_product(call)
        else:
            arguments = [self._widened(argument) for argument in call.args]
            wide = tvm.ir.Call(call.op, arguments, call.attrs, call.ty_args)
        return relax.op.astype(self.builder_.emit(wide), "bfloat16") if dtype == "bfloat16" else wide

    def visit_tuple_getitem_(self, item: Any) -> Any:
        visited = super().visit_tuple_getitem_(item)
        if tensor_dtype(item) == "bfloat16" and tensor_dtype(visited) == _WIDE:
            return relax.op.astype(self.builder_.emit(visited), "bfloat16")
        return visited

    def _widened(self, argument: Any) -> Any:
        if tensor_dtype(argument) != "bfloat16":
            return argument
        return self.builder_.emit(relax.op.astype(argument, _WIDE))


def _add_up_in_float32(call: Any, builder: Any) -> Any:
    name = operator_name(call)
    if not name or tensor_dtype(call) != "float16":
        return call
    if name in _PRODUCTS:
        wide = _wide_product(call)
    elif name in _SUMS:
        widened = builder.emit(relax.op.astype(call.args[0], _WIDE))
        wide = tvm.ir.Call(call.op, [widened, *call.args[1:]], call.attrs, call.ty_args)
    else:
        return call
    return relax.op.astype(builder.emit(wide), "float16")


def _wide_product(call: Any) -> Any:
    """Return a call of one of `_PRODUCTS` that accumulates in float32 and returns float32."""
    attributes = {name: value for name, value in parts(call.attrs) if name != "out_dtype"}
    return _PRODUCTS[call.op.name](*call.args, **attributes, out_dtype=_WIDE)


def _combines(call: Any) -> bool:
    """Return whether an operator is a scatter that combines elements, for example by a sum."""
    is_scatter = call.op.name.removeprefix("relax.") in _SCATTERS
    return is_scatter and str(call.attrs.reduction) != "update"
