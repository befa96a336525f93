"""All of our legalization rules, by device; `passes` runs them before TVM's own. Here are those of operators that lose a NaN or a rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax, te, tirx, topi

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main, tensor_dtype
from tunefarm_tuning.tvm.kernels.legalize import CPU_KERNELS, KERNELS, Legalize
from tunefarm_tuning.tvm.kernels.scan import SCANS
from tunefarm_tuning.tvm.transform.ragged_products import RAGGED_PRODUCTS

_OUT_FUSABLE = 3
"""TVM's operator pattern of a reduction: element-wise steps before it fuse into it, and no steps after it."""


def _round_to_bfloat16(builder: Any, call: Any) -> Any:
    """Make a cast to bfloat16 the last step of a kernel, so that it rounds when it stores.

    For a CPU, TVM computes bfloat16 in float32 and drops casts to it inside a kernel (``BF16ComputeLegalize``): a number is
    rounded only where it is stored. So an operator that reads the rounded number has to be in another kernel.
    """
    if str(call.attrs.dtype) != "bfloat16":
        return tvm.ir.Op.get("relax.astype").get_attr("FLegalize")(builder, call)
    return builder.call_te(
        lambda x: topi.cast(x, "bfloat16"),
        call.args[0],
        primfunc_name_hint="round",
        primfunc_attrs={"op_pattern": _OUT_FUSABLE},
    )


def _relu(builder: Any, call: Any) -> Any:
    def kernel(x: Any) -> Any:
        def positive(*i: Any) -> Any:
            zero = tirx.const(0, str(x.dtype))
            # a NaN is kept, since every comparison with it is false
            return tirx.Select(x[i] < zero, zero, x[i])

        return te.compute(x.shape, positive, name="compute", tag="elemwise")

    return builder.call_te(kernel, call.args[0], primfunc_name_hint="relu")


def _keeping_nan(of_two: Callable[[Any, Any], Any], name: str) -> Legalize:
    """Return the rule of a maximum or minimum of two tensors that is NaN if either operand is NaN."""

    def kernel(a: Any, b: Any) -> Any:
        return topi.where(topi.isnan(a), a, topi.where(topi.isnan(b), b, of_two(a, b)))

    def legalize(builder: Any, call: Any) -> Any:
        has_nan = "float" in tensor_dtype(call)
        return builder.call_te(kernel if has_nan else of_two, *call.args, primfunc_name_hint=name)

    return legalize


CPU_RULES: Mapping[str, Legalize] = {
    **KERNELS,
    **CPU_KERNELS,
    **RAGGED_PRODUCTS,
    "relax.astype": _round_to_bfloat16,
}

GPU_RULES: Mapping[str, Legalize] = {
    **KERNELS,
    "relax.maximum": _keeping_nan(topi.maximum, "maximum"),
    "relax.minimum": _keeping_nan(topi.minimum, "minimum"),
    "relax.nn.relu": _relu,
}
"""CUDA's ``fmaxf`` returns the number where the other is a NaN: what takes an extremum has another rule there."""


def write_scans(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with kernels of ours in place of running sums and products, because TVM's own passes would replace them before ``LegalizeOps``."""
    return rewrite_main(mod, _ScanWriter(mod))


@relax.expr_functor.mutator
class _ScanWriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        rewritten = super().visit_call_(call)
        legalize = SCANS.get(operator_name(call) or "")
        if legalize is None:
            return rewritten
        return legalize(self.builder_, self.builder_.normalize(rewritten))
