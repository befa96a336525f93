"""Replace vector loads whose elements lie near each other by a contiguous load and a shuffle.

TVM 0.27 reads such a vector element by element. In a convolution of groups of four channels, sixteen lanes read four addresses: with a
load and a shuffle instead of sixteen loads it is fifteen times as fast. Kernels for GPUs have no such vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from tunefarm_tuning.tvm.base.tir import is_number, walk

_INTEGERS = ("int32", "int64")
_MAX_VECTORS = 2
"""Maximum number of vectors that are read for one, since a shuffle takes two."""


@dataclass(frozen=True, slots=True)
class _LaneIndices:
    """The index of each lane: a scalar base, and a constant offset for each lane."""

    base: Any
    offsets: tuple[int, ...]


def shuffle_loads(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel that loads whole vectors where it loaded their elements; its loops are vectorised, its buffers flat.

    A load reads an aligned block that holds all elements. The size of the buffer is a multiple of that of the block, so nothing
    outside of the buffer is read.
    """
    values, analyzer = _named(func.body)
    body = tvm_ffi.structural_map(
        func.body, (tvm.ir.TensorLoad, lambda load: _shuffled(load, values, analyzer))
    )
    return func if body.same_as(func.body) else func.with_body(body)


def _named(body: Any) -> tuple[dict[Any, Any], Any]:
    """Return the values of vector variables, and an analyzer that knows those of integer variables.

    Variables bound to a load or a call, or bound twice, are left out: their value depends on where it is computed.
    """
    bound: dict[Any, list[Any]] = {}

    def keep(bind: Any) -> None:
        bound.setdefault(bind.var, []).append(bind.value)

    tvm_ffi.structural_walk(body, (tirx.Bind, keep))
    vectors, analyzer = {}, Analyzer()
    for variable, values in bound.items():
        if len(values) > 1 or any(
            isinstance(part, tvm.ir.TensorLoad | tvm.ir.Call) for part in walk(values[0])
        ):
            continue
        if str(getattr(variable.ty, "dtype", "")) in _INTEGERS:  # a pointer has no such value
            analyzer.bind(variable, values[0])
        else:
            vectors[variable] = values[0]
    return vectors, analyzer


def _shuffled(load: Any, values: Mapping[Any, Any], analyzer: Any) -> Any:
    if len(load.indices) != 1 or isinstance(load.indices[0], tirx.Ramp):
        return load
    dtype = tvm.DataType(str(load.expr_ty().dtype))
    lanes = int(dtype.lanes)
    if lanes < 2 or int(dtype.bits) < 8 or int(tvm.DataType(str(load.source.dtype)).lanes) > 1:
        return load
    indices = _lane_indices(load.indices[0], lanes, values, analyzer)
    if indices is None or len(set(indices.offsets)) == 1:
        return load
    block = _block(load, indices, lanes, analyzer)
    if block is None:
        return load
    first, size = block
    block_load = tirx.BufferLoad(load.source, [tirx.Ramp(indices.base + first, 1, size)])
    # TVM requires as many input lanes as result lanes.
    return tirx.Shuffle(
        [block_load] * -(-lanes // size), [tirx.IntImm("int32", offset - first) for offset in indices.offsets]
    )


def _block(load: Any, indices: _LaneIndices, lanes: int, analyzer: Any) -> tuple[int, int] | None:
    """Return the offset of the block that holds all lanes, and its size; None if it may reach beyond the buffer."""
    source = load.source
    shape = source.shape
    if len(shape) != 1 or not isinstance(shape[0], tirx.IntImm):
        return None
    if len(source.strides) or not is_number(source.elem_offset, 0):
        return None
    known = analyzer.modular_set(indices.base)
    coeff, residue = int(known.coeff), int(known.base)
    low, high = min(indices.offsets), max(indices.offsets)
    size = 2
    while size <= _MAX_VECTORS * lanes:
        aligned = coeff % size == 0 and int(shape[0]) % size == 0
        if aligned and (residue + low) // size == (residue + high) // size:
            return low - (residue + low) % size, size
        size *= 2
    return None


def _lane_indices(index: Any, lanes: int, values: Mapping[Any, Any], analyzer: Any) -> _LaneIndices | None:
    """Return the indices of all lanes; None if they do not differ by constants."""
    if isinstance(index, tirx.Var):
        return _lane_indices(values[index], lanes, values, analyzer) if index in values else None
    if isinstance(index, tirx.Broadcast):
        return _plus(index.value, (0,) * lanes)
    if isinstance(index, tirx.Ramp):
        if not isinstance(index.stride, tirx.IntImm):
            return None
        return _plus(index.base, tuple(int(index.stride) * lane for lane in range(lanes)))
    if not isinstance(index, tirx.Add | tirx.Mul | tirx.FloorDiv | tirx.FloorMod):
        return None
    left, right = (_lane_indices(operand, lanes, values, analyzer) for operand in (index.a, index.b))
    if left is None or right is None:
        return None
    if isinstance(index, tirx.Add):
        sums = tuple(a + b for a, b in zip(left.offsets, right.offsets, strict=True))
        return _LaneIndices(left.base + right.base, sums)
    factor = right.offsets[0]
    if not is_number(right.base, 0) or len(set(right.offsets)) != 1 or factor < 1:
        return None
    if isinstance(index, tirx.Mul):
        return _LaneIndices(left.base * factor, tuple(offset * factor for offset in left.offsets))
    # The base has to be a multiple of the divisor, or it would carry over into the offsets.
    known = analyzer.modular_set(left.base)
    if int(known.coeff) % factor or int(known.base) % factor:
        return None
    if isinstance(index, tirx.FloorDiv):
        base = analyzer.simplify(tirx.floordiv(left.base, factor))
        return _LaneIndices(base, tuple(offset // factor for offset in left.offsets))
    return _LaneIndices(tirx.const(0, _dtype(left.base)), tuple(offset % factor for offset in left.offsets))


def _plus(base: Any, offsets: tuple[int, ...]) -> _LaneIndices:
    """Return lane indices, with a constant base moved into the offsets."""
    if isinstance(base, tirx.IntImm):
        return _LaneIndices(tirx.const(0, _dtype(base)), tuple(int(base) + offset for offset in offsets))
    return _LaneIndices(base, offsets)


def _dtype(value: Any) -> str:
    return str(value.expr_ty().dtype)
