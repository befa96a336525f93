"""Powers with a small constant exponent, as what they are: a product, or a root.

A layer norm that an exporter took apart squares by ``Pow``, which would call the C library for each element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main

_PLAIN: dict[float, Callable[[Any], Any]] = {
    1.0: lambda x: x,
    2.0: lambda x: relax.op.multiply(x, x),
    0.5: relax.op.sqrt,
}
"""The same to the last bit as the C library's (but for the root of minus infinity, which is NaN, and of minus zero, which keeps
its sign); a cube by two products would not be."""


def plain_powers(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with such powers of floating-point tensors replaced."""
    return rewrite_main(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        if isinstance(call.op, tvm.ir.Op) and call.op.name == "relax.power":
            base, exponent = call.args
            plain = _PLAIN.get(_scalar(exponent))
            # An exponent of more dimensions gives the result more, too.
            if plain is not None and tvm_ffi.structural_equal(base.ty, call.ty):
                return self.builder_.normalize(plain(self.visit_expr(base)))
        return super().visit_call_(call)


def _scalar(exponent: Any) -> float:
    """Return the one number of a floating-point constant; NaN where it is something else."""
    if not isinstance(exponent, tvm.ir.GenericConst):
        return float("nan")
    value = exponent.value.numpy()
    return (
        float(value.reshape(()))
        if value.size == 1 and np.issubdtype(value.dtype, np.floating)
        else float("nan")
    )
