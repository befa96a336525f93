"""Sorting and top-k."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.operators.movement import cast
from tunefarm_convert.stablehlo.operators.regions import captured, outcome
from tunefarm_convert.stablehlo.program import Block, UnsupportedFormError
from tunefarm_convert.stablehlo.values import Emitter, Value, compact, one_number
from tunefarm_tuning.core.array_file import numpy_dtype

_SORTED = {
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int64",
    "bool": "int32",
}
"""Wider dtypes to sort in, for dtypes that ONNX Runtime does not sort."""


def _top(emit: Emitter, value: Value, count: int, dim: int, *, largest: bool) -> tuple[Value, Value]:
    """Return the first few in order along a dimension and their positions as int64; equal elements keep their order."""
    wide = _SORTED.get(value.dtype, value.dtype)
    if wide == "uint64":
        raise UnsupportedFormError("of uint64")
    order = value.order
    source = emit.name(cast(emit, value, wide), order)
    scope = emit.writer.scope
    names = emit.writer.nodes(
        "TopK",
        [source, emit.writer.ints([count])],
        [f"{scope}_values", f"{scope}_places"],
        axis=order.index(dim),
        largest=int(largest),
        sorted=1,
    )
    shape = [count if i == dim else size for i, size in enumerate(value.shape)]
    values = cast(emit, emit.computed(names[0], shape, wide, order), value.dtype)
    return values, emit.computed(names[1], shape, "int64", order)


def _sort(op: OperatorContext) -> list[Value]:
    dim = int(op.attribute("dimension", -1)) % op.operands[0].rank
    keys = op.operands[0]
    (block,) = op.operation.blocks
    outer = {number: one_number(op.outer[number]) for number in captured(block)}
    if None in outer.values():
        raise UnsupportedFormError("its comparison uses a value that is computed outside of it")
    largest = _descends(block, len(op.operands), numpy_dtype(keys.dtype), outer)
    values, positions = _top(op.emit, keys, keys.shape[dim], dim, largest=largest)
    return [values, *(_picked(op.emit, operand, positions, dim) for operand in op.operands[1:])]


def _picked(emit: Emitter, value: Value, positions: Value, dim: int) -> Value:
    """Return a value's elements in the order that positions give."""
    if value.data is not None and value.dtype != "bool":
        along = np.moveaxis(compact(value.data), dim, -1)
        if along.shape[-1] == value.shape[dim] and bool(np.all(along == np.arange(value.shape[dim]))):
            return cast(emit, positions, value.dtype)
    order = positions.order
    name = emit.node(
        "GatherElements", [emit.name(value, order), emit.name(positions, order)], axis=order.index(dim)
    )
    return emit.computed(name, value.shape, value.dtype, order)


def _descends(block: Block, count: int, dtype: np.dtype[np.generic], outer: Mapping[int, object]) -> bool:
    """Return whether a comparison of the first two values puts the larger first.

    Raises:
        UnsupportedFormError: It does not compare as smaller or larger, or looks at other values.
    """
    numbers = [-2, -1, 0, 1, 2] if dtype.kind == "i" else [0, 1, 2] if dtype.kind == "u" else [0, 1]
    probes = (
        [dtype.type(number) for number in numbers]
        if dtype.kind in "iub"
        else [np.float64(n) for n in (-2, -1, 0, 1, 2)]
    )
    others = [np.float64(7.0), np.float64(-7.0)]
    possible = {True, False}
    for a, b, (c, d) in product(probes, probes, (others, others[::-1])):
        arguments = [a, b, *[c, d] * (count - 1)]
        (first,) = outcome(block, arguments, outer, zero=True)
        for largest in tuple(possible):
            if bool(first) != bool(a > b if largest else a < b):
                possible.discard(largest)
    if len(possible) != 1:
        raise UnsupportedFormError("its comparison is not that of the first values alone, by size")
    return possible.pop()


def top_k(op: OperatorContext) -> list[Value]:
    """Convert CHLO's top_k, as an operation or as a composite."""
    (value,) = op.operands
    attributes = op.attribute("composite_attributes", op.operation.attributes)
    if attributes.get("largest", True) is False:
        raise UnsupportedFormError("of the smallest")
    values, positions = _top(op.emit, value, int(attributes["k"]), value.rank - 1, largest=True)
    return [values, cast(op.emit, positions, op.result(1).dtype)]


CONVERTERS: Mapping[str, Converter] = {"stablehlo.sort": _sort, "chlo.top_k": top_k}
