"""Keep copies of bfloat16 inside of a kernel in 16 bits.

TVM 0.27 computes in float32 what a kernel computes in bfloat16, and its buffers inside of a kernel with it. A padded input of a convolution
then takes twice the memory, and the instruction's two factors have to be cut out of it, once for each column of a tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.tvm.base.tir import block_with, walk

_NARROW, _BITS = "bfloat16", "uint16"
_CHOICE = "prim.if_then_else"


def with_narrow_buffers(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a scheduled kernel whose buffers of bfloat16 hold its bits, if they hold copies of other elements, or constants.

    GPUs have bfloat16: their kernels stay as they are.
    """
    narrow = {buffer: _of_bits(buffer) for buffer in _copies(func.body)}
    if not narrow:
        return func

    def load(value: Any) -> Any:
        if value.source not in narrow:
            return value
        bits = tirx.BufferLoad(narrow[value.source], value.indices)
        return tirx.reinterpret(str(value.expr_ty().dtype), bits)

    def store(stmt: Any) -> Any:
        if stmt.buffer not in narrow:
            return stmt
        return tirx.BufferStore(narrow[stmt.buffer], _bits_of(stmt.value), stmt.indices)

    def block(stmt: Any) -> Any:
        return block_with(
            stmt,
            reads=[_region(region, narrow) for region in stmt.reads],
            writes=[_region(region, narrow) for region in stmt.writes],
            alloc_buffers=[narrow.get(buffer, buffer) for buffer in stmt.alloc_buffers],
        )

    callbacks = [(tvm.ir.TensorLoad, load), (tirx.BufferStore, store), (SBlock, block)]
    return func.with_body(tvm_ffi.structural_map(func.body, callbacks))


def _copies(body: Any) -> set[Any]:
    """Return the buffers of bfloat16 inside of a kernel into which only constants, arguments and others of these are copied."""
    inside: set[Any] = set()

    def allocated(block: Any) -> None:
        inside.update(buffer for buffer in block.alloc_buffers if str(buffer.dtype) == _NARROW)

    tvm_ffi.structural_walk(body, (SBlock, allocated))  # most kernels have none
    if not inside:
        return inside
    others: set[Any] = set()
    stores = []
    for node in walk(body):
        if isinstance(node, tirx.For) and node.kind == tirx.ForKind.THREAD_BINDING:
            return set()
        if isinstance(node, SBlock):
            others |= {
                part for region in node.match_buffers for part in (region.buffer, region.source.source)
            }
        elif isinstance(node, tirx.BufferStore):
            stores.append(node)
    others |= {store.buffer for store in stores if not _is_copy(store.value)}
    # What is computed in this kernel is float32 in its buffer, and has other bits.
    sources = {
        store.buffer: {node.source for node in walk(store.value) if isinstance(node, tvm.ir.TensorLoad)}
        & inside
        for store in stores
    }
    while more := {buffer for buffer, read in sources.items() if read & others} - others:
        others |= more
    return inside - others


def _is_copy(value: Any) -> bool:
    if isinstance(value, tirx.Select):
        return _is_copy(value.true_value) and _is_copy(value.false_value)
    if isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == _CHOICE:
        return all(_is_copy(part) for part in value.args[1:])
    return isinstance(value, tvm.ir.TensorLoad | tirx.FloatImm)


def _bits_of(value: Any) -> Any:
    """Return the bits of a copied element."""
    if isinstance(value, tirx.Select):
        return tirx.Select(value.condition, _bits_of(value.true_value), _bits_of(value.false_value))
    if isinstance(value, tirx.FloatImm):
        rounded = np.array(float(value), numpy_dtype(_NARROW))
        return tirx.const(int(rounded.view(np.uint16)), _BITS)
    if isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == _CHOICE:
        condition, chosen, other = value.args
        return tirx.if_then_else(condition, _bits_of(chosen), _bits_of(other))
    return tirx.reinterpret(_BITS, value)


def _of_bits(buffer: Any) -> Any:
    return tirx.decl_buffer(buffer.shape, _BITS, buffer.name, strides=buffer.strides, scope=buffer.scope())


def _region(region: Any, narrow: dict[Any, Any]) -> Any:
    return tirx.BufferRegion(narrow[region.source], region.region) if region.source in narrow else region
