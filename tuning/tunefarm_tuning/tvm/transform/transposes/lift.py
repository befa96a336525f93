"""Transposes moved in front of a resize that makes images larger: what it is made of is smaller.

A network that gives a class to every pixel ends in a resize of some classes to the whole image, and with channels first.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main, static_shape
from tunefarm_tuning.tvm.transform.transposes.cancel import transpose_axes
from tunefarm_tuning.tvm.transform.transposes.propagation import CHANNELS_LAST, resized

_RESIZE = "relax.image.resize2d"


def lift_transposes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with transposes of enlarged images, channels last to first, made of what was enlarged.

    What else reads the enlarged image keeps the transpose where it is.
    """
    return rewrite_main(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._uses: Counter[Any] = Counter()
        for block in mod["main"].body.blocks:
            for binding in block.bindings:
                self._count(binding.value)
        self._count(mod["main"].body.body)

    def _count(self, expr: Any) -> None:
        relax.analysis.post_order_visit(
            expr, lambda one: self._uses.update([one] if isinstance(one, relax.Var) else [])
        )

    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        if transpose_axes(visited) != list(CHANNELS_LAST) or self._uses[call.args[0]] != 1:
            return visited
        resize = self.lookup_binding(visited.args[0]) if isinstance(visited.args[0], relax.Var) else None
        if not isinstance(resize, relax.Call) or str(getattr(resize.op, "name", "")) != _RESIZE:
            return visited
        before, after = static_shape(resize.args[0]), static_shape(resize)
        if resize.attrs.layout != "NHWC" or before is None or after is None or prod(before) >= prod(after):
            return visited
        first = self.builder_.emit(relax.op.permute_dims(resize.args[0], list(CHANNELS_LAST)))
        return self.builder_.normalize(resized(resize, first, "NCHW"))
