"""Operations that compute each element by itself: arithmetic, comparisons, choices, conversions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tunefarm_convert.stablehlo.operators.functions import FUNCTIONS, Function
from tunefarm_convert.stablehlo.operators.movement import cast, spread
from tunefarm_convert.stablehlo.program import UnsupportedFormError
from tunefarm_convert.stablehlo.step import Converter, Step
from tunefarm_convert.stablehlo.values import Value, numpy_type, one_number

_WIDER = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}
"""What ONNX Runtime computes with in the place of integers for which it has few operators. Cast back, they wrap around."""


def widened(step: Step, *values: Value) -> list[Value]:
    """Return values as a dtype that ONNX Runtime has all operators for."""
    return [cast(step.emit, value, _WIDER.get(value.dtype, value.dtype)) for value in values]


def _plain(operator: str, *, of_booleans: str = "") -> Converter:
    """Make a converter to one ONNX operator."""

    def convert(step: Step) -> list[Value]:
        dtype = step.operands[0].dtype
        if dtype == "bool":
            if not of_booleans:
                raise UnsupportedFormError("of booleans")
            return [step.apply(of_booleans, *step.operands)]
        made = step.apply(operator, *widened(step, *step.operands))
        return [cast(step.emit, made, dtype)]

    return convert


def _bitwise(of_booleans: str, of_integers: str) -> Converter:
    def convert(step: Step) -> list[Value]:
        boolean = step.operands[0].dtype == "bool"
        return [step.apply(of_booleans if boolean else of_integers, *step.operands)]

    return convert


def _function(function: Function) -> Converter:
    def convert(step: Step) -> list[Value]:
        (x,) = step.operands
        if numpy_type(x.dtype).kind in "iub":
            raise UnsupportedFormError(f"of {x.dtype}")
        return [function(step.emit, x)]

    return convert


def _maximum(step: Step) -> Sequence[Value]:
    a, b = step.operands
    floating = numpy_type(a.dtype).kind not in "iub"
    for value, other in ((a, b), (b, a)):
        if floating and value.data is None and one_number(other) == 0:
            return [step.apply("Relu", value)]
    return _plain("Max", of_booleans="Or")(step)


def _divide(step: Step) -> list[Value]:
    a, b = step.operands
    if numpy_type(a.dtype).kind not in "iu":
        return [step.apply("Div", a, b)]
    # A processor ends the program that divides an integer by zero; XLA's result is one of all bits.
    wide = widened(step, a, b)
    safe, zero = _without_zero(step, wide[1])
    made = step.apply("Div", wide[0], safe)
    if zero is not None:
        ones = -1 if numpy_type(a.dtype).kind == "i" else int(np.iinfo(numpy_type(a.dtype)).max)
        made = step.apply("Where", zero, step.like(made, ones), made, dtype=made.dtype)
    return [cast(step.emit, made, a.dtype)]


def _remainder(step: Step) -> list[Value]:
    a, b = step.operands
    if numpy_type(a.dtype).kind not in "iu":
        return [step.apply("Mod", a, b, fmod=1)]
    wide = widened(step, a, b)
    safe, zero = _without_zero(step, wide[1])
    made = step.apply("Mod", wide[0], safe, fmod=1)
    if zero is not None:
        made = step.apply("Where", zero, wide[0], made, dtype=made.dtype)
    return [cast(step.emit, made, a.dtype)]


def _without_zero(step: Step, value: Value) -> tuple[Value, Value | None]:
    if value.data is not None and np.all(value.data):
        return value, None
    zero = step.apply("Equal", value, step.like(value, 0), dtype="bool")
    return step.apply("Where", zero, step.like(value, 1), value, dtype=value.dtype), zero


_COMPARED = {
    "EQ": ("Equal", False),
    "NE": ("Equal", True),
    "LT": ("Less", False),
    "LE": ("LessOrEqual", False),
    "GT": ("Greater", False),
    "GE": ("GreaterOrEqual", False),
}


def _compare(step: Step) -> list[Value]:
    direction = str(step.attribute("comparison_direction"))
    if step.attribute("compare_type") == "TOTALORDER":
        raise UnsupportedFormError("in the total order of floats, outside of a sort")
    if direction not in _COMPARED:
        raise UnsupportedFormError(f"in the direction {direction}")
    operator, negated = _COMPARED[direction]
    if step.operands[0].dtype == "bool" and operator == "Equal":
        differs = step.apply("Xor", *step.operands)  # TVM 0.27 cannot build Equal of booleans
        return [differs if negated else step.apply("Not", differs)]
    values: Sequence[Value] = widened(step, *step.operands)
    if values[0].dtype == "bool":
        values = [cast(step.emit, value, "int32") for value in values]
    made = step.apply(operator, *values, dtype="bool")
    return [step.apply("Not", made) if negated else made]


def like_shape(step: Step, value: Value, shape: Sequence[int]) -> Value:
    """Return a value that may be a single number in a shape."""
    return spread(step.emit, value, shape, []) if value.rank == 0 and len(shape) else value


def _select(step: Step) -> list[Value]:
    condition, chosen, other = step.operands
    condition = like_shape(step, condition, chosen.shape)
    known = one_number(condition)
    if known is not None:
        return [chosen if known else other]
    dtype = chosen.dtype
    if dtype == "bool":
        a, b = (cast(step.emit, value, "int32") for value in (chosen, other))
    else:
        a, b = widened(step, chosen, other)
    return [cast(step.emit, step.apply("Where", condition, a, b, dtype=a.dtype), dtype)]


def _clamp(step: Step) -> list[Value]:
    low, x, high = step.operands
    ends = [one_number(low), one_number(high)]
    if x.data is None and None not in ends and numpy_type(x.dtype).kind not in "iub" and ends[0] <= ends[1]:
        order = x.order
        names = [step.emit.writer.weight(np.array(end, numpy_type(x.dtype))) for end in ends]
        clipped = step.emit.node("Clip", [step.emit.name(x, order, whole=False), *names])
        return [step.emit.computed(clipped, x.shape, x.dtype, order, x.held)]
    wide = widened(step, like_shape(step, low, x.shape), x, like_shape(step, high, x.shape))
    made = step.apply("Min", step.apply("Max", wide[1], wide[0]), wide[2])
    return [cast(step.emit, made, x.dtype)]


def _convert(step: Step) -> list[Value]:
    (x,) = step.operands
    wanted = step.result().dtype
    from_float = numpy_type(x.dtype).kind not in "iub"
    if from_float and numpy_type(wanted).kind in "iu" and x.data is None:
        # Numbers beyond its ends become the ends, and NaN zero; of what C makes of them there is no telling.
        return [_saturated(step, x, wanted)]
    return [cast(step.emit, x, wanted)]


def _saturated(step: Step, x: Value, wanted: str) -> Value:
    bits = np.iinfo(numpy_type(wanted))
    if bits.bits > 32:
        return cast(step.emit, x, wanted)
    wide = cast(step.emit, x, "float64")
    ends = step.apply("Min", step.apply("Max", wide, step.like(wide, bits.min)), step.like(wide, bits.max))
    return cast(step.emit, cast(step.emit, ends, "int64" if bits.bits == 32 else "int32"), wanted)


def _shift(kind: str) -> Converter:
    def convert(step: Step) -> list[Value]:
        x, count = step.operands
        dtype = numpy_type(x.dtype)
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
            negative = step.apply("Less", *widened(step, x, step.like(x, 0)), dtype="bool")
            x = _choose(step, negative, step.apply("BitwiseNot", x), x)
        direction = "LEFT" if kind == "left" else "RIGHT"
        wide = "uint64" if bits == 64 else "uint32"  # ONNX Runtime shifts no 16 bits
        x, count = (cast(step.emit, cast(step.emit, value, unsigned), wide) for value in (x, count))
        made = step.apply("BitShift", x, count, direction=direction)
        made = cast(step.emit, cast(step.emit, made, unsigned), str(dtype))
        if negative is not None:
            made = _choose(step, negative, step.apply("BitwiseNot", made), made)
        return [made]

    return convert


def _choose(step: Step, condition: Value, a: Value, b: Value) -> Value:
    dtype = a.dtype
    a, b = widened(step, a, b)
    return cast(step.emit, step.apply("Where", condition, a, b, dtype=a.dtype), dtype)


def _reduce_precision(step: Step) -> list[Value]:
    (x,) = step.operands
    form = (int(step.attribute("exponent_bits")), int(step.attribute("mantissa_bits")))
    own = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}[x.dtype]
    if form[0] >= own[0] and form[1] >= own[1]:
        return [x]
    smaller = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32"}.get(form)
    if smaller is None:
        raise UnsupportedFormError(f"to {form[0]} bits of exponent and {form[1]} of mantissa")
    return [cast(step.emit, cast(step.emit, x, smaller), x.dtype)]


def _is_finite(step: Step) -> list[Value]:
    (x,) = step.operands
    largest = step.like(x, float("inf"))
    return [step.apply("Less", step.apply("Abs", x), largest, dtype="bool")]


def _identity(step: Step) -> list[Value]:
    return list(step.operands)


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
