"""Convolutions without the outer taps of their kernels that only ever meet padding.

A kernel dilated by 18 over an image of 16 pixels has eight of nine taps outside of it, wherever it stands; so has a 3x3 one over a
single pixel. TVM's loops multiply all of them by zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main, static_shape
from tunefarm_tuning.tvm.transform.convolution import CHANNELS_FIRST, convolution_name, convolve


def drop_unreached_taps(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its convolutions by constant weights, channels first, cut to the taps that meet the image."""
    return rewrite_main(mod, _Rewriter(mod))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        if convolution_name(visited, CHANNELS_FIRST) is None:
            return visited
        data, weights = visited.args
        before, after = static_shape(data), static_shape(visited)
        if before is None or after is None or not isinstance(weights, tvm.ir.GenericConst):
            return visited
        attributes = visited.attrs
        rank = len(before) - 2
        value = weights.value.numpy()
        padding = [int(one) for one in attributes.padding]
        kept = [slice(None), slice(None)]
        for axis in range(rank):
            taps = range(value.shape[2 + axis])
            dilation, ahead = int(attributes.dilation[axis]), padding[axis]
            last_place = (after[2 + axis] - 1) * int(attributes.strides[axis])
            # A tap meets pixels from where it stands first, which may be ahead of the image, to where it stands last.
            reached = [
                tap
                for tap in taps
                if tap * dilation - ahead < before[2 + axis] and last_place + tap * dilation - ahead >= 0
            ]
            first, last = (reached[0], reached[-1]) if reached else (0, taps[-1])
            ahead -= first * dilation
            behind = padding[rank + axis] - (taps[-1] - last) * dilation
            # Where there is less padding than that, the image itself would have to be cut: rare, and left alone.
            if min(ahead, behind) < 0:
                first, last = 0, taps[-1]
            else:
                padding[axis], padding[rank + axis] = ahead, behind
            kept.append(slice(first, last + 1))
        cut = np.ascontiguousarray(value[tuple(kept)])
        # A product of padding with what is no number is no zero. Looked at last: hardly any network has what is cut.
        if cut.shape == value.shape or not np.isfinite(value.astype(np.float64)).all():
            return visited
        return self.builder_.normalize(
            convolve(visited, data, relax.const(cut, str(weights.value.dtype)), padding=padding)
        )
