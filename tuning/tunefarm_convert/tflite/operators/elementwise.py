"""Elementwise operators: arithmetic, comparisons, activations, selections, casts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce

import numpy as np
from onnx import TensorProto, helper

from tunefarm_convert.tflite.converter import Converter, OperatorContext

_MOST_BITS = 8
_FLOAT32 = np.finfo(np.float32)


def operands(op: OperatorContext, positions: list[int] | None = None) -> tuple[list[str], bool]:
    """Return the inputs as real numbers, and whether they have channels first, as they do if an image among them has.

    They broadcast from the last dimension, as in the file.
    """
    indexes = [op.index(i) for i in (range(len(op.operator.inputs)) if positions is None else positions)]
    values = op.values
    first = op.prefers_first(*indexes) and len(op.out_shape()) == 4
    # A tensor of lower rank would broadcast along other dimensions; constants can be given four.
    first = first and all(
        len(values.shape(i)) in (0, 4) or values.constant(i) is not None or set(values.shape(i)) == {1}
        for i in indexes
    )
    return [_operand(op, i, first=first) for i in indexes], first


def _operand(op: OperatorContext, index: int, *, first: bool) -> str:
    values = op.values
    shape = values.shape(index)
    if not first or not shape or set(shape) == {1}:
        return values.get(index)
    if len(shape) == 4:
        return values.get(index, first=True)
    return values.spread(index)


def _plain(*operators: str) -> Converter:
    """Return a converter to a chain of ONNX operators; the first operator takes all inputs."""

    def convert(op: OperatorContext) -> None:
        inputs, first = operands(op)
        result = op.node(operators[0], *inputs)
        for operator in operators[1:]:
            result = op.node(operator, result)
        op.finish(op.activated(result), first=first)

    return convert


def _computed(compute: Callable[..., str], count: int | None = None) -> Converter:
    """Return a converter that computes the output's elements from those of all inputs, or of the first `count`."""

    def convert(op: OperatorContext) -> None:
        inputs, first = operands(op, None if count is None else list(range(count)))
        op.finish(compute(op, *inputs), first=first)

    return convert


def _clip(low: float, high: float) -> Converter:
    return _computed(lambda op, x: op.node("Clip", x, *(op.scalar(end, op.index(0)) for end in (low, high))))


def _squared_difference(op: OperatorContext, a: str, b: str) -> str:
    difference = op.node("Sub", a, b)
    return op.node("Mul", difference, difference)


def _leaky_relu(op: OperatorContext, x: str) -> str:
    return op.node("LeakyRelu", x, alpha=float(op.option("Alpha", 0.0)))


def _gelu(op: OperatorContext, x: str) -> str:
    return op.node("Gelu", x, approximate="tanh" if op.option("Approximate", False) else "none")


def _floor_div(op: OperatorContext, a: str, b: str) -> str:
    if _is_float(op):
        return op.node("Floor", op.node("Div", a, b))
    # The remainder has the divisor's sign.
    return op.node("Div", op.node("Sub", a, op.node("Mod", a, b)), b)


def _floor_mod(op: OperatorContext, a: str, b: str) -> str:
    if not _is_float(op):
        return op.node("Mod", a, b)
    quotient = op.node("Floor", op.node("Div", a, b))
    return op.node("Sub", a, op.node("Mul", quotient, b))


def _atan2(op: OperatorContext, y: str, x: str) -> str:
    """Return the angle of the point (x, y): of the right half plane by the quotient, of the left one from there."""
    zero, half = op.scalar(0, op.index(0)), op.scalar(np.pi / 2, op.index(0))
    on_axis = op.node("Equal", x, zero)
    angle = op.node("Atan", op.node("Div", y, op.node("Where", on_axis, op.scalar(1, op.index(0)), x)))
    turn = op.node(
        "Where", op.node("Less", y, zero), op.scalar(-np.pi, op.index(0)), op.scalar(np.pi, op.index(0))
    )
    angle = op.node("Where", op.node("Less", x, zero), op.node("Add", angle, turn), angle)
    return op.node("Where", on_axis, op.node("Mul", op.node("Sign", y), half), angle)


def _fake_quant(op: OperatorContext, x: str) -> str:
    """Round to the steps of a range, which is moved until zero is one of them."""
    low, high, bits = (np.float32(op.option("Min")), np.float32(op.option("Max")), int(op.option("NumBits")))
    if op.option("NarrowRange", False) or not 0 < bits <= _MOST_BITS:
        raise op.unsupported_form(f"{bits} bits, or a range without its least step")
    last = 2**bits - 1
    # Also refuses infinite ends, NaN, and steps that are denormal numbers.
    if not last * float(_FLOAT32.tiny) <= float(high) - float(low) <= float(_FLOAT32.max):
        raise op.bad_file(f"it rounds numbers from {low} to {high}")
    scale = (high - low) / np.float32(last)
    zero = int(np.clip(np.floor(np.float32(0.5) - low / scale), 0, last))
    ends = [op.writer.weight(np.array((step - zero) * scale, np.float32)) for step in (0, last)]
    steps, zeros = op.writer.weight(np.array(scale)), op.writer.weight(np.array(zero, np.uint8))
    within = op.node("Min", op.node("Max", x, ends[0]), ends[1])
    return op.node("DequantizeLinear", op.node("QuantizeLinear", within, steps, zeros), steps, zeros)


def _xor(op: OperatorContext, a: str, b: str) -> str:
    return op.node("Xor" if op.tensor(0).dtype == "bool" else "BitwiseXor", a, b)


def _bucketize(op: OperatorContext) -> None:
    """Count the boundaries that are not above each element."""
    boundaries = np.array(op.option("Boundaries", ()), np.float32)
    if not boundaries.size or np.any(np.diff(boundaries) < 0):
        raise op.bad_file("its boundaries are not in order")
    x = op.values.get(op.index(0))
    if op.tensor(0).dtype != "float32":
        x = op.node("Cast", x, to=TensorProto.FLOAT)
    x = op.node("Unsqueeze", x, op.writer.ints([-1]))
    below = op.node("Cast", op.node("GreaterOrEqual", x, op.writer.weight(boundaries)), to=TensorProto.INT32)
    op.finish(op.node("ReduceSum", below, op.writer.ints([-1]), keepdims=0))


def _is_float(op: OperatorContext) -> bool:
    tensor = op.tensor(0)
    return tensor.is_quantized or tensor.dtype.startswith("float")


def _select(op: OperatorContext) -> None:
    condition, chosen = op.shape(0), op.shape(1)
    if op.operator.kind == "SELECT" and len(condition) == 1 and len(chosen) > 1:
        # Here a list of conditions selects whole rows.
        name = op.values.reshaped(op.index(0), [*condition, *[1] * (len(chosen) - 1)])
        op.finish(op.node("Where", name, *(op.values.get(op.index(i)) for i in (1, 2))))
        return
    inputs, first = operands(op, [0, 1, 2])
    op.finish(op.node("Where", *inputs), first=first)


def _cast(op: OperatorContext) -> None:
    source, index = op.index(0), op.output()
    dtype = np.dtype(op.values.tensor(index).dtype)
    data = op.values.constant(source)
    if data is not None and not op.tensor(0).is_quantized:
        op.values.set_constant(index, data.astype(dtype))
        return
    first = op.values.is_first_only(source)
    name = op.values.get(source, first=first, raw=True)
    if op.tensor(0).dtype == dtype.name:
        product = op.values.product(source)
        if product is not None:
            op.values.note_product(index, *product)
        op.finish(name, first=first, raw=True)
        return
    result = op.node("Cast", name, to=helper.np_dtype_to_tensor_dtype(dtype))
    op.finish(result, first=first, raw=True)


def _dequantize(op: OperatorContext) -> None:
    source, index = op.index(0), op.output()
    tensor = op.values.tensor(source)
    if not tensor.is_quantized and tensor.dtype != "float16":
        raise op.unsupported_form(f"its input of {tensor.dtype} has no scale")
    data = op.values.constant(source)
    if data is not None:
        op.values.set_constant(index, data, tensor.quantization if tensor.is_quantized else None)
        return
    first = op.values.is_first_only(source)
    name = op.values.get(source, first=first)
    if not tensor.is_quantized:
        name = op.node("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype("float32")))
    op.finish(name, first=first)


def _same(op: OperatorContext) -> None:
    """Give the input itself: sparse tensors are dense once they are read."""
    source, index = op.index(0), op.output()
    data, quantization = op.values.constant(source), op.tensor(0).quantization
    if data is not None:
        op.values.set_constant(index, data, quantization if op.tensor(0).is_quantized else None)
        return
    op.finish(op.values.get(source, raw=True), raw=True)


def _quantize(op: OperatorContext) -> None:
    tensor, first = op.values.tensor(op.output()), op.values.is_first_only(op.index(0))
    name = op.values.get(op.index(0), first=first)
    scales = tensor.quantization
    if not tensor.is_quantized and scales is not None and tensor.dtype == "int32" and len(scales.scale) == 1:
        # ONNX quantises to 16 bits at most. A double holds all steps.
        steps = op.node(
            "Div",
            op.node("Cast", name, to=TensorProto.DOUBLE),
            op.writer.weight(scales.scale.astype(np.float64)),
        )
        moved = op.node("Add", op.node("Round", steps), op.writer.weight(scales.zero.astype(np.float64)))
        name = op.node("Cast", moved, to=TensorProto.INT32)
    elif not tensor.is_quantized:
        raise op.unsupported_form("its output has no scale")
    op.finish(name, first=first)


def _zeros_like(op: OperatorContext) -> None:
    tensor = op.values.tensor(op.output())
    zero = op.scalar(0, op.output())
    if tensor.shape != op.shape(0):
        raise op.bad_file(f"zeros of {list(tensor.shape)} are not like {list(op.shape(0))}")
    op.finish(op.node("Expand", zero, op.writer.ints(tensor.shape)))


CONVERTERS: Mapping[str, Converter] = {
    "ADD": _plain("Add"),
    "SUB": _plain("Sub"),
    "MUL": _plain("Mul"),
    "DIV": _plain("Div"),
    "POW": _plain("Pow"),
    "ATAN2": _computed(_atan2),
    "BITWISE_XOR": _computed(_xor),
    "BUCKETIZE": _bucketize,
    "MAXIMUM": _plain("Max"),
    "MINIMUM": _plain("Min"),
    "ADD_N": _computed(lambda op, *terms: reduce(partial(op.node, "Add"), terms)),
    "FLOOR_DIV": _computed(_floor_div, 2),
    "FLOOR_MOD": _computed(_floor_mod, 2),
    "SQUARED_DIFFERENCE": _computed(_squared_difference),
    "ABS": _plain("Abs"),
    "NEG": _plain("Neg"),
    "EXP": _plain("Exp"),
    "LOG": _plain("Log"),
    "SIN": _plain("Sin"),
    "COS": _plain("Cos"),
    "SQRT": _plain("Sqrt"),
    "RSQRT": _plain("Sqrt", "Reciprocal"),
    "SQUARE": _computed(lambda op, x: op.node("Mul", x, x)),
    "FLOOR": _plain("Floor"),
    "CEIL": _plain("Ceil"),
    "ROUND": _plain("Round"),
    "SIGN": _plain("Sign"),
    "RELU": _plain("Relu"),
    "RELU6": _clip(0.0, 6.0),
    "RELU_N1_TO_1": _clip(-1.0, 1.0),
    "RELU_0_TO_1": _clip(0.0, 1.0),
    "TANH": _plain("Tanh"),
    "LOGISTIC": _plain("Sigmoid"),
    "HARD_SWISH": _plain("HardSwish"),
    "ELU": _plain("Elu"),
    "LEAKY_RELU": _computed(_leaky_relu),
    "PRELU": _computed(lambda op, x, slope: op.node("PRelu", x, slope), 2),
    "GELU": _computed(_gelu),
    "EQUAL": _plain("Equal"),
    "NOT_EQUAL": _plain("Equal", "Not"),
    "GREATER": _plain("Greater"),
    "GREATER_EQUAL": _plain("GreaterOrEqual"),
    "LESS": _plain("Less"),
    "LESS_EQUAL": _plain("LessOrEqual"),
    "LOGICAL_AND": _plain("And"),
    "LOGICAL_OR": _plain("Or"),
    "LOGICAL_NOT": _plain("Not"),
    "FAKE_QUANT": _computed(_fake_quant),
    "SELECT": _select,
    "SELECT_V2": _select,
    "CAST": _cast,
    "DEQUANTIZE": _dequantize,
    "QUANTIZE": _quantize,
    "ZEROS_LIKE": _zeros_like,
    "DENSIFY": _same,
}
