"""Reductions over dimensions: sums, products, maxima, and the index of the maximum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.folding import LARGEST_ELEMENTS
from tunefarm_convert.stablehlo.operators.movement import cast, spread
from tunefarm_convert.stablehlo.operators.regions import neutral, operator_of, outcome
from tunefarm_convert.stablehlo.program import Block, UnsupportedFormError
from tunefarm_convert.stablehlo.values import Emitter, Value, compact, constant, one_number
from tunefarm_tuning.core.array_file import numpy_dtype

_REDUCERS = {
    "add": "ReduceSum",
    "multiply": "ReduceProd",
    "maximum": "ReduceMax",
    "minimum": "ReduceMin",
    "and": "ReduceMin",
    "or": "ReduceMax",
}
_FOLDED = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.logical_and,
    "or": np.logical_or,
}
_COMBINED = {"add": "Add", "multiply": "Mul", "maximum": "Max", "minimum": "Min", "and": "And", "or": "Or"}


def combined(emit: Emitter, reducer: str, a: Value, b: Value) -> Value:
    """Apply a reducer to two values."""
    dtype = a.dtype
    if dtype in ("int32", "int64", "bool") or numpy_dtype(dtype).kind not in "iub":
        return emit.apply(_COMBINED[reducer], a, b)
    a, b = (cast(emit, value, "int64") for value in (a, b))
    return cast(emit, emit.apply(_COMBINED[reducer], a, b), dtype)


def with_start(emit: Emitter, reducer: str, value: Value, start: Value) -> Value:
    """Combine a reduction with its initial value, unless the value is neutral."""
    number = one_number(start)
    if number is not None and number == neutral(reducer, value.dtype):
        return value
    start = spread(emit, start, value.shape, [])
    return combined(emit, reducer, value, start)


def reduced(emit: Emitter, reducer: str, value: Value, dims: Sequence[int]) -> Value:
    """Reduce a value over some of its dimensions."""
    if not dims:
        return value
    shape = [size for i, size in enumerate(value.shape) if i not in dims]
    if value.data is not None and value.data.size <= LARGEST_ELEMENTS:
        data = _FOLDED[reducer].reduce(value.data, axis=tuple(dims), dtype=value.data.dtype)
        return constant(np.asarray(data))
    dtype = value.dtype
    kind = numpy_dtype(dtype).kind
    if dtype == "bool" or (kind in "iu" and dtype not in ("int32", "int64")):
        value = cast(emit, value, "int32" if dtype == "bool" else "int64")
    order = value.order
    axes = sorted(order.index(i) for i in dims)
    name = emit.name(value, order)
    name = emit.node(_REDUCERS[reducer], [name, emit.writer.ints(axes)], keepdims=0)
    remaining = [i for i in range(value.rank) if i not in dims]
    kept = tuple(remaining.index(i) for i in order if i not in dims)
    return cast(emit, emit.computed(name, shape, value.dtype, kept), dtype)


def _reduce(op: OperatorContext) -> list[Value]:
    count = len(op.operands) // 2
    values, starts = op.operands[:count], op.operands[count:]
    dims = op.ints("dimensions")
    if count == 2:
        return _with_places(op, dims)
    if count != 1:
        raise UnsupportedFormError(f"of {count} tensors at once")
    reducer = operator_of(op.operation.blocks[0])
    if reducer == "assign" or (reducer in ("and", "or") and values[0].dtype != "bool"):
        raise UnsupportedFormError(f"its inner program is {reducer}, of {values[0].dtype}")
    result = reduced(op.emit, reducer, values[0], dims)
    return [with_start(op.emit, reducer, result, starts[0])]


def _with_places(op: OperatorContext, dims: list[int]) -> list[Value]:
    """Convert a reduction of values and their indices: the largest (smallest) along a dimension, and its first index."""
    value, counted, start, _ = op.operands
    if len(dims) != 1 or not _counts(counted, dims[0]):
        raise UnsupportedFormError("of two tensors, of which the second does not count along one dimension")
    floating = numpy_dtype(value.dtype).kind not in "iub"
    operator = _arg_operator(op.operation.blocks[0], floating=floating)
    reducer = "maximum" if operator == "ArgMax" else "minimum"
    number = one_number(start)
    if number is None or number != neutral(reducer, value.dtype):
        raise UnsupportedFormError("of two tensors, starting from a number that may be in the result")
    emit, order = op.emit, value.order
    if value.dtype in ("int64", "uint64"):
        raise UnsupportedFormError(f"of two tensors, of {value.dtype}")
    # A dtype that ONNX Runtime has ArgMax for, and that holds all numbers of the value's.
    source = value if floating else cast(emit, value, "float64" if value.dtype == "uint32" else "int32")
    name = emit.node(operator, [emit.name(source, order)], axis=order.index(dims[0]), keepdims=0)
    shape = op.result(0).shape
    remaining = [i for i in range(value.rank) if i != dims[0]]
    kept = tuple(remaining.index(i) for i in order if i != dims[0])
    indices = emit.computed(name, shape, "int64", kept)
    return [reduced(emit, reducer, value, dims), cast(emit, indices, counted.dtype)]


def _counts(indices: Value, dim: int) -> bool:
    """Return whether a value is 0, 1, 2 ... along a dimension."""
    if indices.data is None:
        return False
    along = np.moveaxis(compact(indices.data), dim, -1)
    size = indices.shape[dim]
    return along.shape[-1] == size and bool(np.all(along == np.arange(size)))


def _arg_operator(block: Block, *, floating: bool) -> str:
    """Return ONNX's operator for a region that keeps the larger or smaller of two pairs.

    NaN is not tried: ONNX does not define it here.
    """
    if len(block.arguments) != 4 or len(block.returned) != 2:
        raise UnsupportedFormError("its inner program does not keep one of two pairs")
    type_ = np.float64 if floating else np.int64
    candidates = set(_ARGS)
    for a, b, (i, j) in product((1, 2), (1, 2), ((3, 4), (4, 3), (-3, -4), (-4, -3))):
        first, second = (type_(a), np.int64(i)), (type_(b), np.int64(j))
        picked = tuple(outcome(block, [*first, *second], {}))
        for operator in tuple(candidates):
            if picked != _ARGS[operator](first, second):
                candidates.discard(operator)
    if len(candidates) != 1:
        raise UnsupportedFormError("its inner program keeps neither the first largest nor the first smallest")
    return candidates.pop()


_ARGS = {
    "ArgMax": lambda a, b: min(a, b, key=lambda pair: (-pair[0], pair[1])),
    "ArgMin": lambda a, b: min(a, b, key=lambda pair: (pair[0], pair[1])),
}


def _batch_norm(op: OperatorContext) -> list[Value]:
    x = op.operands[0]
    dim = int(op.attribute("feature_index"))
    epsilon = float(op.attribute("epsilon"))
    emit = op.emit
    order = x.order
    if order.index(dim) != 1:
        order = (
            *([i for i in range(x.rank) if i != dim][:1]),
            dim,
            *[i for i in range(x.rank) if i != dim][1:],
        )
    if x.rank < 2:
        raise UnsupportedFormError("of one dimension")
    names = [emit.name(value) for value in op.operands[1:]]
    name = emit.node("BatchNormalization", [emit.name(x, order), *names], epsilon=epsilon)
    return [emit.computed(name, x.shape, x.dtype, order)]


def _iota(op: OperatorContext) -> list[Value]:
    type_ = op.result()
    dim = int(op.attribute("iota_dimension"))
    sizes = [size if i == dim else 1 for i, size in enumerate(type_.shape)]
    counted = np.arange(type_.shape[dim]).astype(numpy_dtype(type_.dtype)).reshape(sizes)
    return [constant(np.broadcast_to(counted, type_.shape))]


CONVERTERS: Mapping[str, Converter] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.batch_norm_inference": _batch_norm,
    "stablehlo.iota": _iota,
    "stablehlo.dynamic_iota": _iota,
}
