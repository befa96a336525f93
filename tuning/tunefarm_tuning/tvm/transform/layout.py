"""The layout of tensors: channels last, for all operators by TVM's rules, or only around each convolution.

On a CPU the innermost loop is then contiguous and vectorises: 128 against 102 GFLOPS on a 3x3 layer. On a GPU neighbouring threads read
neighbouring addresses however small the image, and tensor cores take this layout (ADR 0026).
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_calls
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.transform.convolutions.convolution import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    convolution_name,
    convolve,
)

LAYOUTS = {
    **{name: list(layouts) for name, layouts in CHANNELS_LAST.items()},
    # TVM has no channels-last kernels for these. They are listed, or they would follow the layout of their input.
    "relax.nn.conv1d_transpose": ["NCW", "IOW"],
    "relax.nn.conv2d_transpose": ["NCHW", "IOHW"],
    "relax.nn.conv3d_transpose": ["NCDHW", "IODHW"],
}
"""The layouts of data and weights for TVM's ``ConvertLayout``, by operator."""


def convert_layout(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with channels last, by TVM's layout rule for each operator; the same module if nothing convolves.

    TVM's pass takes minutes of a graph of some thousand nodes, as unrolled loops are.
    """
    convolves = any(isinstance(node, tvm.ir.Op) and node.name in LAYOUTS for node in walk(mod["main"].body))
    return relax.transform.ConvertLayout(LAYOUTS)(mod) if convolves else mod


def convolve_channels_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with every convolution computed with channels last, between transposes there and back.

    ``ConvertLayout`` asks every operator of a network for its layout rule, and fails where one of these is wrong (that of a
    squeeze behind a convolution, say). This asks none; transpose propagation moves the transposes away.
    """
    return rewrite_calls(mod, _channels_last)


def _channels_last(call: Any, builder: Any) -> Any:
    name = convolution_name(call, CHANNELS_FIRST)
    if name is None:
        return call
    operands = [
        builder.emit(relax.op.permute_dims(operand, _axes(layout, wanted)))
        for operand, layout, wanted in zip(call.args, CHANNELS_FIRST[name], CHANNELS_LAST[name], strict=True)
    ]
    result = builder.emit(convolve(call, *operands, layouts=CHANNELS_LAST[name]))
    back = _axes(CHANNELS_LAST[name][0], CHANNELS_FIRST[name][0])
    return builder.normalize(relax.op.permute_dims(result, back))


def _axes(layout: str, wanted: str) -> list[int]:
    return [layout.index(axis) for axis in wanted]
