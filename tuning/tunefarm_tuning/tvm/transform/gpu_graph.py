"""What the graph of a network needs on a GPU, and not on a CPU: wide sums of 16-bit numbers, and kernels that keep a NaN.

A product or a convolution of float16 adds up in float32 and is rounded once, as cuBLAS, cuDNN and ONNX Runtime do it: a sum of
some thousand products in float16 has two digits. Tensor cores add up in float32 at the same speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax, te, tirx, topi

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main, tensor_dtype
from tunefarm_tuning.tvm.base.tir import parts
from tunefarm_tuning.tvm.kernels.special_values import Legalize

Binary = Callable[[Any, Any], Any]

_NARROW = "float16"  # whatever else is computed in bfloat16 needs the same: see `bfloat16_graph`
WIDE = "float32"
PRODUCTS: dict[str, Callable[..., Any]] = {
    "relax.matmul": relax.op.matmul,
    "relax.nn.conv1d": relax.op.nn.conv1d,
    "relax.nn.conv2d": relax.op.nn.conv2d,
    "relax.nn.conv3d": relax.op.nn.conv3d,
    "relax.nn.conv1d_transpose": relax.op.nn.conv1d_transpose,
    "relax.nn.conv2d_transpose": relax.op.nn.conv2d_transpose,
}
"""Operators that can be told what to add up in."""
_SUMS = {
    f"relax.{name}"
    for name in (
        *("sum", "mean", "variance", "std", "cumsum", "nn.softmax", "nn.log_softmax"),
        *("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.adaptive_avg_pool2d"),
    )
}
"""Operators that add up in what they are given; normalisations widen it by themselves."""


def wide_sums(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with sums of float16 made in float32, and rounded at the end."""
    return rewrite_main(mod, _Widener(mod))


@relax.expr_functor.mutator
class _Widener(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.Op) or tensor_dtype(call) != _NARROW:
            return call
        if call.op.name in PRODUCTS:
            wide = wide_product(call)
        elif call.op.name in _SUMS:
            widened = self.builder_.emit(relax.op.astype(call.args[0], WIDE))
            wide = tvm.ir.Call(call.op, [widened, *call.args[1:]], call.attrs, call.ty_args)
        else:
            return call
        return relax.op.astype(self.builder_.emit(wide), _NARROW)


def wide_product(call: Any) -> Any:
    """Return the call of one of `PRODUCTS`, adding up in float32 and making that."""
    given = {name: value for name, value in parts(call.attrs) if name != "out_dtype"}
    return PRODUCTS[call.op.name](*call.args, **given, out_dtype=WIDE)


def _relu(builder: Any, call: Any) -> Any:
    def kernel(x: Any) -> Any:
        def positive(*i: Any) -> Any:
            zero = tirx.const(0, str(x.dtype))
            # Nothing compares with a NaN, so that goes through.
            return tirx.Select(x[i] < zero, zero, x[i])

        return te.compute(x.shape, positive, name="compute", tag="elemwise")

    return builder.call_te(kernel, call.args[0], primfunc_name_hint="relu")


def _of_two(tvms: Binary, name: str) -> Legalize:
    def either(a: Any, b: Any) -> Any:
        return topi.where(topi.isnan(a), a, topi.where(topi.isnan(b), b, tvms(a, b)))

    def legalize(builder: Any, call: Any) -> Any:
        kernel = either if "float" in tensor_dtype(call) else tvms
        return builder.call_te(kernel, *call.args, primfunc_name_hint=name)

    return legalize


KERNELS: Mapping[str, Legalize] = {
    "relax.maximum": _of_two(topi.maximum, "maximum"),
    "relax.minimum": _of_two(topi.minimum, "minimum"),
    "relax.nn.relu": _relu,
}
"""Of operators in which CUDA's ``fmaxf`` would lose a NaN: it takes the other number, whichever comes first."""
