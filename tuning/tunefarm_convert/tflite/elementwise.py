"""Operators that compute each element by itself: arithmetic, comparisons, activations, choices, casts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import helper

from tunefarm_convert.tflite.converter import Converter, OperatorContext
from tunefarm_convert.tflite.graph import bad_file, unsupported_form


def operands(op: OperatorContext, positions: list[int] | None = None) -> tuple[list[str], bool]:
    """Return the inputs as real numbers, and whether they have channels first, which they have if an image among them has.

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
    """Make a converter to a chain of ONNX operators, the first of which takes all inputs."""

    def convert(op: OperatorContext) -> None:
        inputs, first = operands(op)
        result = op.node(operators[0], *inputs)
        for operator in operators[1:]:
            result = op.node(operator, result)
        op.finish(op.activated(result), first=first)

    return convert


def _clip(low: float, high: float) -> Converter:
    def convert(op: OperatorContext) -> None:
        (x,), first = operands(op)
        ends = [op.scalar(end, op.index(0)) for end in (low, high)]
        op.finish(op.node("Clip", x, *ends), first=first)

    return convert


def _square(op: OperatorContext) -> None:
    (x,), first = operands(op)
    op.finish(op.node("Mul", x, x), first=first)


def _squared_difference(op: OperatorContext) -> None:
    inputs, first = operands(op)
    difference = op.node("Sub", *inputs)
    op.finish(op.node("Mul", difference, difference), first=first)


def _leaky_relu(op: OperatorContext) -> None:
    (x,), first = operands(op)
    op.finish(op.node("LeakyRelu", x, alpha=float(op.option("Alpha", 0.0))), first=first)


def _gelu(op: OperatorContext) -> None:
    (x,), first = operands(op)
    kind = "tanh" if op.option("Approximate", False) else "none"
    op.finish(op.node("Gelu", x, approximate=kind), first=first)


def _prelu(op: OperatorContext) -> None:
    (x, slope), first = operands(op, [0, 1])
    op.finish(op.node("PRelu", x, slope), first=first)


def _add_n(op: OperatorContext) -> None:
    inputs, first = operands(op)
    total = inputs[0]
    for term in inputs[1:]:
        total = op.node("Add", total, term)
    op.finish(total, first=first)


def _floor_div(op: OperatorContext) -> None:
    (a, b), first = operands(op, [0, 1])
    if _is_float(op):
        result = op.node("Floor", op.node("Div", a, b))
    else:  # the remainder has the divisor's sign
        result = op.node("Div", op.node("Sub", a, op.node("Mod", a, b)), b)
    op.finish(result, first=first)


def _floor_mod(op: OperatorContext) -> None:
    (a, b), first = operands(op, [0, 1])
    if _is_float(op):
        quotient = op.node("Floor", op.node("Div", a, b))
        result = op.node("Sub", a, op.node("Mul", quotient, b))
    else:
        result = op.node("Mod", a, b)
    op.finish(result, first=first)


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
    result = op.node("Cast", name, to=helper.np_dtype_to_tensor_dtype(dtype))
    op.finish(result, first=first, raw=True)


def _dequantize(op: OperatorContext) -> None:
    source, index = op.index(0), op.output()
    tensor = op.values.tensor(source)
    if not tensor.is_quantized and tensor.dtype != "float16":
        raise unsupported_form(op.operator, f"its input of {tensor.dtype} has no scale")
    data = op.values.constant(source)
    if data is not None:
        op.values.set_constant(index, data, tensor.quantization if tensor.is_quantized else None)
        return
    first = op.values.is_first_only(source)
    name = op.values.get(source, first=first)
    if not tensor.is_quantized:
        name = op.node("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype("float32")))
    op.finish(name, first=first)


def _quantize(op: OperatorContext) -> None:
    if not op.values.tensor(op.output()).is_quantized:
        raise unsupported_form(op.operator, "its output has no scale")
    first = op.values.is_first_only(op.index(0))
    op.finish(op.values.get(op.index(0), first=first), first=first)


def _zeros_like(op: OperatorContext) -> None:
    tensor = op.values.tensor(op.output())
    zero = op.scalar(0, op.output())
    if tensor.shape != op.shape(0):
        raise bad_file(f"{op.operator.label}: zeros of {list(tensor.shape)} are not like {list(op.shape(0))}")
    op.finish(op.node("Expand", zero, op.writer.ints(tensor.shape)))


CONVERTERS: Mapping[str, Converter] = {
    "ADD": _plain("Add"),
    "SUB": _plain("Sub"),
    "MUL": _plain("Mul"),
    "DIV": _plain("Div"),
    "POW": _plain("Pow"),
    "MAXIMUM": _plain("Max"),
    "MINIMUM": _plain("Min"),
    "ADD_N": _add_n,
    "FLOOR_DIV": _floor_div,
    "FLOOR_MOD": _floor_mod,
    "SQUARED_DIFFERENCE": _squared_difference,
    "ABS": _plain("Abs"),
    "NEG": _plain("Neg"),
    "EXP": _plain("Exp"),
    "LOG": _plain("Log"),
    "SIN": _plain("Sin"),
    "COS": _plain("Cos"),
    "SQRT": _plain("Sqrt"),
    "RSQRT": _plain("Sqrt", "Reciprocal"),
    "SQUARE": _square,
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
    "LEAKY_RELU": _leaky_relu,
    "PRELU": _prelu,
    "GELU": _gelu,
    "EQUAL": _plain("Equal"),
    "NOT_EQUAL": _plain("Equal", "Not"),
    "GREATER": _plain("Greater"),
    "GREATER_EQUAL": _plain("GreaterOrEqual"),
    "LESS": _plain("Less"),
    "LESS_EQUAL": _plain("LessOrEqual"),
    "LOGICAL_AND": _plain("And"),
    "LOGICAL_OR": _plain("Or"),
    "LOGICAL_NOT": _plain("Not"),
    "SELECT": _select,
    "SELECT_V2": _select,
    "CAST": _cast,
    "DEQUANTIZE": _dequantize,
    "QUANTIZE": _quantize,
    "ZEROS_LIKE": _zeros_like,
}
