"""Elementwise operations: arithmetic, comparisons, selections, conversions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tunefarm_convert.stablehlo.converter import Converter, OperatorContext
from tunefarm_convert.stablehlo.operators.functions import FUNCTIONS, Function
from tunefarm_convert.stablehlo.operators.movement import cast, spread
from tunefarm_convert.stablehlo.program import UnsupportedFormError
from tunefarm_convert.stablehlo.values import Value, one_number
from tunefarm_tuning.core.array_file import numpy_dtype

_WIDER = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}
"""Wider dtypes to compute in, for integers that ONNX Runtime has few operators for. Casting back wraps around."""


def widened(op: OperatorContext, *values: Value) -> list[Value]:
    """Cast values to a dtype that ONNX Runtime has all operators for."""
    return [cast(op.emit, value, _WIDER.get(value.dtype, value.dtype)) for value in values]


def _plain(operator: str, *, of_booleans: str = "") -> Converter:
    """Return a converter to a single ONNX operator."""

    def convert(op: OperatorContext) -> list[Value]:
        dtype = op.operands[0].dtype
        if dtype == "bool":
            if not of_booleans:
                raise UnsupportedFormError("of booleans")
            return [op.apply(of_booleans, *op.operands)]
        result = op.apply(operator, *widened(op, *op.operands))
        return [cast(op.emit, result, dtype)]

    return convert


def _bitwise(of_booleans: str, of_integers: str) -> Converter:
    def convert(op: OperatorContext) -> list[Value]:
        boolean = op.operands[0].dtype == "bool"
        return [op.apply(of_booleans if boolean else of_integers, *op.operands)]

    return convert


def _function(function: Function) -> Converter:
    def convert(op: OperatorContext) -> list[Value]:
        (x,) = op.operands
        if numpy_dtype(x.dtype).kind in "iub":
            raise UnsupportedFormError(f"of {x.dtype}")
        return [function(op.emit, x)]

    return convert


def _maximum(op: OperatorContext) -> Sequence[Value]:
    a, b = op.operands
    floating = numpy_dtype(a.dtype).kind not in "iub"
    for value, other in ((a, b), (b, a)):
        if floating and value.data is None and one_number(other) == 0:
            return [op.apply("Relu", value)]
    return _plain("Max", of_booleans="Or")(op)


def _divide(op: OperatorContext) -> list[Value]:
    a, b = op.operands
    if numpy_dtype(a.dtype).kind not in "iu":
        return [op.apply("Div", a, b)]
    # A processor kills a program that divides an integer by zero; XLA's result has all bits set.
    wide = widened(op, a, b)
    safe, zero = _without_zero(op, wide[1])
    result = op.apply("Div", wide[0], safe)
    if zero is not None:
        ones = -1 if numpy_dtype(a.dtype).kind == "i" else int(np.iinfo(numpy_dtype(a.dtype)).max)
        result = op.apply("Where", zero, op.like(result, ones), result, dtype=result.dtype)
    return [cast(op.emit, result, a.dtype)]


def _remainder(op: OperatorContext) -> list[Value]:
    a, b = op.operands
    if numpy_dtype(a.dtype).kind not in "iu":
        return [op.apply("Mod", a, b, fmod=1)]
    wide = widened(op, a, b)
    safe, zero = _without_zero(op, wide[1])
    result = op.apply("Mod", wide[0], safe, fmod=1)
    if zero is not None:
        result = op.apply("Where", zero, wide[0], result, dtype=result.dtype)
    return [cast(op.emit, result, a.dtype)]


def _without_zero(op: OperatorContext, value: Value) -> tuple[Value, Value | None]:
    if value.data is not None and np.all(value.data):
        return value, None
    zero = op.apply("Equal", value, op.like(value, 0), dtype="bool")
    return op.apply("Where", zero, op.like(value, 1), value, dtype=value.dtype), zero


_COMPARED = {
    "EQ": ("Equal", False),
    "NE": ("Equal", True),
    "LT": ("Less", False),
    "LE": ("LessOrEqual", False),
    "GT": ("Greater", False),
    "GE": ("GreaterOrEqual", False),
}


def _compare(op: OperatorContext) -> list[Value]:
    direction = str(op.attribute("comparison_direction"))
    if op.attribute("compare_type") == "TOTALORDER":
        raise UnsupportedFormError("in the total order of floats, outside of a sort")
    if direction not in _COMPARED:
        raise UnsupportedFormError(f"in the direction {direction}")
    operator, negated = _COMPARED[direction]
    if op.operands[0].dtype == "bool" and operator == "Equal":
        differs = op.apply("Xor", *op.operands)  # TVM 0.27 cannot build Equal of booleans
        return [differs if negated else op.apply("Not", differs)]
    values: Sequence[Value] = widened(op, *op.operands)
    if values[0].dtype == "bool":
        values = [cast(op.emit, value, "int32") for value in values]
    result = op.apply(operator, *values, dtype="bool")
    return [op.apply("Not", result) if negated else result]


def like_shape(op: OperatorContext, value: Value, shape: Sequence[int]) -> Value:
    """Spread a value to a shape if it is a single number."""
    return spread(op.emit, value, shape, []) if value.rank == 0 and len(shape) else value


def _select(op: OperatorContext) -> list[Value]:
    condition, chosen, other = op.operands
    condition = like_shape(op, condition, chosen.shape)
    known = one_number(condition)
    if known is not None:
        return [chosen if known else other]
    dtype = chosen.dtype
    if dtype == "bool":
        a, b = (cast(op.emit, value, "int32") for value in (chosen, other))
    else:
        a, b = widened(op, chosen, other)
    return [cast(op.emit, op.apply("Where", condition, a, b, dtype=a.dtype), dtype)]


def _clamp(op: OperatorContext) -> list[Value]:
    low, x, high = op.operands
    ends = [one_number(low), one_number(high)]
    if x.data is None and None not in ends and numpy_dtype(x.dtype).kind not in "iub" and ends[0] <= ends[1]:
        order = x.order
        names = [op.emit.writer.weight(np.array(end, numpy_dtype(x.dtype))) for end in ends]
        clipped = op.emit.node("Clip", [op.emit.name(x, order, whole=False), *names])
        return [op.emit.computed(clipped, x.shape, x.dtype, order, x.held)]
    wide = widened(op, like_shape(op, low, x.shape), x, like_shape(op, high, x.shape))
    result = op.apply("Min", op.apply("Max", wide[1], wide[0]), wide[2])
    return [cast(op.emit, result, x.dtype)]


def _convert(op: OperatorContext) -> list[Value]:
    (x,) = op.operands
    wanted = op.result().dtype
    from_float = numpy_dtype(x.dtype).kind not in "iub"
    if from_float and numpy_dtype(wanted).kind in "iu" and x.data is None:
        # Numbers out of range become the nearest limit, and NaN becomes zero; in C their conversion is undefined.
        return [_saturated(op, x, wanted)]
    return [cast(op.emit, x, wanted)]


def _saturated(op: OperatorContext, x: Value, wanted: str) -> Value:
    bits = np.iinfo(numpy_dtype(wanted))
    if bits.bits > 32:
        return cast(op.emit, x, wanted)
    wide = cast(op.emit, x, "float64")
    ends = op.apply("Min", op.apply("Max", wide, op.like(wide, bits.min)), op.like(wide, bits.max))
    return cast(op.emit, cast(op.emit, ends, "int64" if bits.bits == 32 else "int32"), wanted)


def _shift(kind: str) -> Converter:
    def convert(op: OperatorContext) -> list[Value]:
        x, count = op.operands
        dtype = numpy_dtype(x.dtype)
        if dtype.kind not in "iu":
            raise UnsupportedFormError(f"of {x.dtype}")
        bits = dtype.itemsize * 8
        if (
            count.data is None
            or np.any(count.data.astype(np.int64) < 0)
            or np.any(count.data.astype(np.int64) >= bits)
        ):
            raise UnsupportedFormError("by a number that the program computes, or that is out of range")
        unsigned = f"uint{bits}"
        negative = None
        if kind == "arithmetic" and dtype.kind == "i":
            negative = op.apply("Less", *widened(op, x, op.like(x, 0)), dtype="bool")
            x = _choose(op, negative, op.apply("BitwiseNot", x), x)
        direction = "LEFT" if kind == "left" else "RIGHT"
        wide = "uint64" if bits == 64 else "uint32"  # ONNX Runtime has no shift of 16-bit integers
        x, count = (cast(op.emit, cast(op.emit, value, unsigned), wide) for value in (x, count))
        result = op.apply("BitShift", x, count, direction=direction)
        result = cast(op.emit, cast(op.emit, result, unsigned), str(dtype))
        if negative is not None:
            result = _choose(op, negative, op.apply("BitwiseNot", result), result)
        return [result]

    return convert


def _choose(op: OperatorContext, condition: Value, a: Value, b: Value) -> Value:
    dtype = a.dtype
    a, b = widened(op, a, b)
    return cast(op.emit, op.apply("Where", condition, a, b, dtype=a.dtype), dtype)


def _reduce_precision(op: OperatorContext) -> list[Value]:
    (x,) = op.operands
    form = (int(op.attribute("exponent_bits")), int(op.attribute("mantissa_bits")))
    own = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}[x.dtype]
    if form[0] >= own[0] and form[1] >= own[1]:
        return [x]
    smaller = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32"}.get(form)
    if smaller is None:
        raise UnsupportedFormError(f"to {form[0]} bits of exponent and {form[1]} of mantissa")
    return [cast(op.emit, cast(op.emit, x, smaller), x.dtype)]


def _is_finite(op: OperatorContext) -> list[Value]:
    (x,) = op.operands
    largest = op.like(x, float("inf"))
    return [op.apply("Less", op.apply("Abs", x), largest, dtype="bool")]


def _identity(op: OperatorContext) -> list[Value]:
    return list(op.operands)


CONVERTERS: Mapping[str, Converter] = {
    "stablehlo.abs": _plain("Abs"),
    "stablehlo.add": _plain("Add", of_booleans="Or"),
    "stablehlo.subtract": _plain("Sub"),
    "stablehlo.multiply": _plain("Mul", of_booleans="And"),
    "stablehlo.divide": _divide,
    "stablehlo.remainder": _remainder,
    "stablehlo.maximum": _maximum,
    "stablehlo.minimum": _plain("Min", of_booleans="And"),
    "stablehlo.power": _plain("Pow"),
    "stablehlo.negate": _plain("Neg"),
    "stablehlo.sign": _plain("Sign"),
    "stablehlo.and": _bitwise("And", "BitwiseAnd"),
    "stablehlo.or": _bitwise("Or", "BitwiseOr"),
    "stablehlo.xor": _bitwise("Xor", "BitwiseXor"),
    "stablehlo.not": _bitwise("Not", "BitwiseNot"),
    "stablehlo.shift_left": _shift("left"),
    "stablehlo.shift_right_arithmetic": _shift("arithmetic"),
    "stablehlo.shift_right_logical": _shift("logical"),
    "stablehlo.compare": _compare,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
    "stablehlo.convert": _convert,
    "stablehlo.is_finite": _is_finite,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.optimization_barrier": _identity,
    "sdy.sharding_constraint": _identity,
    **{name: _function(function) for name, function in FUNCTIONS.items()},
}
