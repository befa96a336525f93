"""Transpose propagation towards the start: move a transpose in front of a resize that enlarges images.

A network that classifies every pixel ends in a resize of a small map to the whole image, transposed to channels first. The small map
has fewer elements to move.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_main, static_shape, uses_of
from tunefarm_tuning.tvm.transform.transposes.cancel import transpose_axes
from tunefarm_tuning.tvm.transform.transposes.rules import CHANNELS_LAST, resized


def propagate_transposes_up(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with transposes from channels last to first moved in front of the resize that enlarges their image.

    A transpose stays where it is if another operator reads the enlarged image as well.
    """
    return rewrite_main(mod, _UpPropagation(mod))


@relax.expr_functor.mutator
class _UpPropagation(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._uses = uses_of(mod["main"])

    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        if transpose_axes(visited) != list(CHANNELS_LAST) or self._uses[call.args[0]] != 1:
            return visited
        resize: Any = self.lookup_binding(visited.args[0]) if isinstance(visited.args[0], relax.Var) else None
        if operator_name(resize) != "relax.image.resize2d":
            return visited
        before, after = static_shape(resize.args[0]), static_shape(resize)
        if resize.attrs.layout != "NHWC" or before is None or after is None or prod(before) >= prod(after):
            return visited
        transposed = self.builder_.emit(relax.op.permute_dims(resize.args[0], list(CHANNELS_LAST)))
        return self.builder_.normalize(resized(resize, transposed, "NCHW"))
