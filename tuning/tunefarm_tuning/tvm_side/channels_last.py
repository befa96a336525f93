"""Convolutions with their channels last, each between two transposes of its own.

TVM's `ConvertLayout` asks every operator of a network for its rule, and raises where one of these is wrong (that of a squeeze behind
a convolution, say). This asks none: the transposes go where `sink_transposes` moves them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm_side.rewriting import rewritten

_CONVOLUTIONS: dict[str, tuple[Callable[..., Any], str, str, str, str]] = {
    "relax.nn.conv1d": (relax.op.nn.conv1d, "NCW", "OIW", "NWC", "WIO"),
    "relax.nn.conv2d": (relax.op.nn.conv2d, "NCHW", "OIHW", "NHWC", "HWIO"),
    "relax.nn.conv3d": (relax.op.nn.conv3d, "NCDHW", "OIDHW", "NDHWC", "DHWIO"),
}
"""By name: the operator, the layouts of data and weights that this is written for, and those that they get."""


def channels_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with every convolution computed with channels last, between transposes there and back."""
    return rewritten(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        name = str(visited.op.name) if isinstance(visited.op, tvm.ir.Op) else ""
        if name not in _CONVOLUTIONS:
            return visited
        make, data_from, weights_from, data_to, weights_to = _CONVOLUTIONS[name]
        attributes = visited.attrs
        layouts = (attributes.data_layout, attributes.kernel_layout)
        if layouts != (data_from, weights_from) or attributes.out_layout not in ("", data_from):
            return visited
        data, weights = visited.args
        made = make(
            self._ordered(data, data_from, data_to),
            self._ordered(weights, weights_from, weights_to),
            strides=[int(one) for one in attributes.strides],
            padding=[int(one) for one in attributes.padding],
            dilation=[int(one) for one in attributes.dilation],
            groups=int(attributes.groups),
            data_layout=data_to,
            kernel_layout=weights_to,
            out_layout=data_to,
            out_dtype=attributes.out_dtype,
        )
        return self.builder_.normalize(
            relax.op.permute_dims(self.builder_.emit(made), _axes(data_to, data_from))
        )

    def _ordered(self, tensor: Any, layout: str, wanted: str) -> Any:
        return self.builder_.emit(relax.op.permute_dims(tensor, _axes(layout, wanted)))


def _axes(layout: str, wanted: str) -> list[int]:
    return [layout.index(axis) for axis in wanted]
