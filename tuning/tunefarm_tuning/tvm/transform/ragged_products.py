"""Pad the columns of large constant matrices to whole vectors: the products of recognisers with 6,625 or 18,710 characters.

A matrix whose rows end in the middle of a vector cannot be packed into panels, and each of its rows begins elsewhere in a vector. Zeros
behind its columns cost little; the product drops the columns that they make.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name, rewrite_calls, static_shape

_LANES = 8
"""Half a vector of AVX-512. The same for all CPUs, since a farm shares the tasks of a model among them."""
_PANEL = 64
"""Columns of the widest tiles of the default schedules."""
_MIN_BYTES = 256 << 10
"""Smaller matrices are read from a cache, in any order."""
_MAX_PADDING = 1 / 16
"""Maximum share of columns to add."""


def widen_ragged_products(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a network whose large constant matrices have a number of columns that vectors divide."""
    return rewrite_calls(mod, _widen)


def _widen(call: Any, builder: Any) -> Any:
    if operator_name(call) != "relax.matmul":
        return call
    data, matrix = call.args
    out = static_shape(call)
    if out is None or not isinstance(matrix, tvm.ir.GenericConst) or str(matrix.value.dtype) != "float32":
        return call
    *rows, columns = (int(size) for size in matrix.value.shape)
    padding = -columns % _PANEL
    if (
        len(rows) != 1
        or columns % _LANES == 0
        or padding > columns * _MAX_PADDING
        or 4 * rows[0] * columns < _MIN_BYTES
    ):
        return call
    padded = np.pad(matrix.value.numpy(), ((0, 0), (0, padding)))
    product = builder.emit(relax.op.matmul(data, relax.const(padded, "float32"), out_dtype="float32"))
    return builder.normalize(relax.op.strided_slice(product, [len(out) - 1], [0], [columns]))
