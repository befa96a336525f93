"""Batch norms behind convolutions, merged into their weights.

TVM's ``FoldBatchnormToConv2D`` writes its epsilon as a float32, which halves and doubles do not take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.dpl import TupleGetItemPattern, is_const, is_op, rewrite_call, wildcard


def fold_batch_norms(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with batch norms of constants behind two-dimensional convolutions by constants merged into these."""
    weight = is_const()
    conv = is_op("relax.nn.conv2d")(wildcard(), weight)
    statistics = [is_const() for _ in range(4)]
    norm = is_op("relax.nn.batch_norm")(conv, *statistics)

    def merged(found: Any, matches: Any) -> Any:
        old, attributes = matches[conv], matches[norm].attrs
        if old.attrs["kernel_layout"] != "OIHW" or int(attributes.axis) != 1:
            return found
        dtype = str(_value(matches[weight]).dtype)
        # In doubles, and rounded once.
        scale, shift, mean, variance = (_value(matches[one]).astype(np.float64) for one in statistics)
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + float(attributes.epsilon))
            after = (_value(matches[weight]).astype(np.float64) * factor.reshape(-1, 1, 1, 1)).astype(dtype)
            offset = (shift - mean * factor).reshape(1, -1, 1, 1).astype(dtype)
        if not (np.isfinite(after).all() and np.isfinite(offset).all()):
            return found  # the product is no number of this type, where norm after convolution may be
        data = relax.Call(old.op, (old.args[0], relax.const(after, dtype)), old.attrs)
        return relax.op.add(data, relax.const(offset, dtype))

    made = tvm.IRModule(dict(mod.functions.items()), attrs=mod.attrs)
    made.update_func(
        mod.get_global_var("main"), rewrite_call(TupleGetItemPattern(norm, 0), merged, mod["main"])
    )
    return made


def _value(constant: Any) -> NDArray[Any]:
    value: NDArray[Any] = constant.value.numpy()
    return value
