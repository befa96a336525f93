"""Vectors whose elements lie near each other in another order than the vector's: read whole, and shuffled.

TVM 0.27 reads such a vector element by element. In a convolution of groups of four channels, sixteen lanes read four places: with a
load and a shuffle instead of sixteen loads it is fifteen times as fast. Kernels for GPUs have no such vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import pipeline as s_tir_pipeline
from tvm.sym import Analyzer

from tunefarm_tuning.tvm.base.tir import walk

_PIPELINE = "s_tir"
_INTEGERS = ("int32", "int64")
_MOST_VECTORS = 2
"""Of the vector that is asked for, so many may be read: a shuffle takes two."""


@dataclass(frozen=True, slots=True)
class _Places:
    """The elements of an index: a scalar, the same for all, and a constant for each lane."""

    base: Any
    offsets: tuple[int, ...]


def register() -> None:
    """Have every kernel that is built for a CPU in this process from now on read so."""
    tirx.register_tir_pipeline(_PIPELINE, _pipeline)


def _pipeline() -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """Return TVM's own pipeline, and the step behind it that only code for the host goes through."""
    lower, finalize_host, finalize_device = s_tir_pipeline.default_s_tir_pipeline()

    def finalize() -> Any:
        return tvm.transform.Sequential([_SHUFFLE_LOADS, finalize_host()])

    return lower, finalize, finalize_device


def shuffle_loads(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a kernel, its loops vectorised and its buffers flat, that reads whole vectors where it read their elements.

    What is read lies between elements that were read before, or in one aligned block with them, of which the buffer has
    a whole number: never outside of it.
    """
    values, analyzer = _named(func.body)
    body = tvm_ffi.structural_map(
        func.body, (tvm.ir.TensorLoad, lambda load: _shuffled(load, values, analyzer))
    )
    return func if body.same_as(func.body) else func.with_body(body)


def _named(body: Any) -> tuple[dict[Any, Any], Any]:
    """Return the vectors that have a name, and what is known of the integers that have one.

    Only of what stays the same wherever it is computed again: of no loads, and of nothing that has two values.
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
        if str(getattr(variable.ty, "dtype", "")) in _INTEGERS:  # a pointer has none
            analyzer.bind(variable, values[0])
        else:
            vectors[variable] = values[0]
    return vectors, analyzer


def _on_all(module: tvm.IRModule, _: Any) -> tvm.IRModule:
    made = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    for name, func in module.functions.items():
        if isinstance(func, tirx.PrimFunc):
            made.update_func(name, shuffle_loads(func))
    return made


_SHUFFLE_LOADS = tvm.transform.module_pass(_on_all, opt_level=0, name="ShuffleLoads")


def _shuffled(load: Any, values: Mapping[Any, Any], analyzer: Any) -> Any:
    if len(load.indices) != 1 or isinstance(load.indices[0], tirx.Ramp):
        return load
    dtype = tvm.DataType(str(load.expr_ty().dtype))
    lanes = int(dtype.lanes)
    if lanes < 2 or int(dtype.bits) < 8 or int(tvm.DataType(str(load.source.dtype)).lanes) > 1:
        return load
    places = _places(load.indices[0], lanes, values, analyzer)
    if places is None or len(set(places.offsets)) == 1:
        return load
    block = _block(load, places, lanes, analyzer)
    if block is None:
        return load
    first, size = block
    whole = tirx.BufferLoad(load.source, [tirx.Ramp(places.base + first, 1, size)])
    # TVM wants as many lanes to choose from as are chosen.
    return tirx.Shuffle(
        [whole] * -(-lanes // size), [tirx.IntImm("int32", one - first) for one in places.offsets]
    )


def _block(load: Any, places: _Places, lanes: int, analyzer: Any) -> tuple[int, int] | None:
    """Return the offset of the first element to read, and how many; None where they are not known to be the buffer's."""
    source = load.source
    shape = source.shape
    if len(shape) != 1 or not isinstance(shape[0], tirx.IntImm):
        return None
    if len(source.strides) or not _is_number(source.elem_offset, 0):
        return None
    known = analyzer.modular_set(places.base)
    coeff, residue = int(known.coeff), int(known.base)
    low, high = min(places.offsets), max(places.offsets)
    size = 2
    while size <= _MOST_VECTORS * lanes:
        aligned = coeff % size == 0 and int(shape[0]) % size == 0
        if aligned and (residue + low) // size == (residue + high) // size:
            return low - (residue + low) % size, size
        size *= 2
    return None


def _places(index: Any, lanes: int, values: Mapping[Any, Any], analyzer: Any) -> _Places | None:
    """Return the elements of an index of so many lanes; None where they do not differ by constants."""
    if isinstance(index, tirx.Var):
        return _places(values[index], lanes, values, analyzer) if index in values else None
    if isinstance(index, tirx.Broadcast):
        return _plus(index.value, (0,) * lanes)
    if isinstance(index, tirx.Ramp):
        if not isinstance(index.stride, tirx.IntImm):
            return None
        return _plus(index.base, tuple(int(index.stride) * lane for lane in range(lanes)))
    if not isinstance(index, tirx.Add | tirx.Mul | tirx.FloorDiv | tirx.FloorMod):
        return None
    left, right = (_places(one, lanes, values, analyzer) for one in (index.a, index.b))
    if left is None or right is None:
        return None
    if isinstance(index, tirx.Add):
        sums = tuple(a + b for a, b in zip(left.offsets, right.offsets, strict=True))
        return _Places(left.base + right.base, sums)
    factor = right.offsets[0]
    if not _is_number(right.base, 0) or len(set(right.offsets)) != 1 or factor < 1:
        return None
    if isinstance(index, tirx.Mul):
        return _Places(left.base * factor, tuple(one * factor for one in left.offsets))
    # What is the same for all is a multiple of the divisor, or would carry over.
    known = analyzer.modular_set(left.base)
    if int(known.coeff) % factor or int(known.base) % factor:
        return None
    if isinstance(index, tirx.FloorDiv):
        base = analyzer.simplify(tirx.floordiv(left.base, factor))
        return _Places(base, tuple(one // factor for one in left.offsets))
    return _Places(tirx.const(0, _dtype(left.base)), tuple(one % factor for one in left.offsets))


def _plus(base: Any, offsets: tuple[int, ...]) -> _Places:
    """Return the places with the constant part of what is the same for all in the offsets."""
    if isinstance(base, tirx.IntImm):
        return _Places(tirx.const(0, _dtype(base)), tuple(int(base) + one for one in offsets))
    return _Places(base, offsets)


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == number


def _dtype(value: Any) -> str:
    return str(value.expr_ty().dtype)
