"""Casts to bfloat16 on a CPU: each is the last step of a kernel, which rounds what it stores.

TVM computes with bfloat16 in float32 where it builds for a CPU, and takes a cast to it inside a kernel for one that has
nothing to do (``BF16ComputeLegalize``): a number is rounded only where it is stored. So what reads the rounded number is
another kernel; what makes it may be in the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import topi

from tunefarm_tuning.tvm.kernels.special_values import Legalize

_NARROW = "bfloat16"
_ENDS_A_KERNEL = 3
"""TVM's pattern of a reduction: steps on elements fuse into it, and nothing fuses behind it."""


def _astype(builder: Any, call: Any) -> Any:
    if str(call.attrs.dtype) != _NARROW:
        return tvm.ir.Op.get("relax.astype").get_attr("FLegalize")(builder, call)
    return builder.call_te(
        lambda x: topi.cast(x, _NARROW),
        call.args[0],
        primfunc_name_hint="round",
        primfunc_attrs={"op_pattern": _ENDS_A_KERNEL},
    )


KERNELS: Mapping[str, Legalize] = {"relax.astype": _astype}
