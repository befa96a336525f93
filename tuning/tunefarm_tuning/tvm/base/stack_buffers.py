"""Put small buffers of CPU kernels on the stack, where LLVM makes registers of them.

TVM 0.27 takes every buffer from a pool, each time that its loop is entered. LLVM leaves such memory where it is: it stores a tile's sums at
the end, and those of bytes it clears in memory first and reads back after. That took 100 to 300 cycles a tile of 28 vectors, as many as a
1x1 convolution of 16 channels needs for its products.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

_MOST_BYTES = 4 << 10
_MOST_BYTES_OF_KERNEL = 64 << 10
_STAYS = "disable_lower_builtin"
"""TVM's annotation of a buffer that ``LowerTVMBuiltin`` does not take from the pool."""


def with_buffers_on_stack(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel whose small buffers of fixed size are on the stack."""
    left = _MOST_BYTES_OF_KERNEL

    def placed(alloc: Any) -> Any:
        nonlocal left
        size = _bytes_of(alloc.buffer)
        if not 0 < size <= min(left, _MOST_BYTES) or _STAYS in alloc.annotations:
            return alloc
        left -= size
        return on_stack(alloc.buffer, alloc.annotations)

    body = tvm_ffi.structural_map(func.body, (tirx.AllocBuffer, placed))
    return func if body.same_as(func.body) else func.with_body(body)


def on_stack(buffer: Any, annotations: Mapping[str, Any] | None = None) -> Any:
    """Return the statement that puts a buffer on the stack."""
    return tirx.AllocBuffer(buffer, {**(annotations or {}), _STAYS: tirx.IntImm("bool", 1)})


def _bytes_of(buffer: Any) -> int:
    """Return a buffer's size; 0 if it is known only when the kernel runs."""
    if not all(isinstance(extent, tirx.IntImm) for extent in buffer.shape):
        return 0
    dtype = tvm.DataType(str(buffer.dtype))
    return prod(int(extent) for extent in buffer.shape) * int(dtype.lanes) * -(-int(dtype.bits) // 8)
