"""`take` at constant places side by side, as the slice that it is: one of queries, keys and values, a class token.

A slice fuses with what follows it, and moves past transposes; a `take`, whose places may be known at run time only, does neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main, static_shape


def plain_takes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with such replaced."""
    return rewrite_main(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        if not isinstance(visited.op, tvm.ir.Op) or visited.op.name != "relax.take":
            return visited
        x, places = visited.args
        shape, after = static_shape(x), static_shape(visited)
        if not isinstance(places, tvm.ir.GenericConst) or shape is None or after is None:
            return visited
        if isinstance(x, tvm.ir.GenericConst) or visited.attrs.axis is None or 0 in after:
            return visited
        axis, wanted = int(visited.attrs.axis), places.value.numpy()
        flat = [int(place) for place in wanted.reshape(-1)]
        if wanted.ndim > 1 or any(not 0 <= place < shape[axis] for place in flat):
            return visited
        if np.any(np.diff(flat) != 1):
            return visited
        made = self.builder_.normalize(
            relax.op.strided_slice(x, axes=[axis], begin=[flat[0]], end=[flat[-1] + 1])
        )
        if wanted.ndim == 1:
            return made
        return self.builder_.normalize(relax.op.reshape(self.builder_.emit(made), list(after)))
