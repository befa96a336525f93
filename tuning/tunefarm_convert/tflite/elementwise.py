"""Operators that compute each element by itself: arithmetic, comparisons, activations, choices, casts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import helper

from tunefarm_convert.tflite.graph import bad_file, unsupported_form
from tunefarm_convert.tflite.step import Converter, Step


def operands(step: Step, positions: list[int] | None = None) -> tuple[list[str], bool]:
    """Return the inputs as real numbers, and whether with their channels first: so, if an image among them is.

    All fit each other by broadcasting from the last dimension, as in the file.
    """
    indexes = [step.index(i) for i in (range(len(step.operator.inputs)) if positions is None else positions)]
    values = step.values
    first = step.prefers_first(*indexes) and len(step.out_shape()) == 4
    # What has fewer dimensions would meet others than before; constants can be brought to four.
    first = first and all(
        len(values.shape(i)) in (0, 4) or values.constant(i) is not None or set(values.shape(i)) == {1}
        for i in indexes
    )
    return [_operand(step, i, first=first) for i in indexes], first


def _operand(step: Step, index: int, *, first: bool) -> str:
    values = step.values
    shape = values.shape(index)
    if not first or not shape or set(shape) == {1}:
        return values.get(index)
    if len(shape) == 4:
        return values.get(index, first=True)
    return values.spread(index)


def _plain(*operators: str) -> Converter:
    """Make a converter to ONNX operators one after the other, the first of which takes all inputs."""

    def convert(step: Step) -> None:
        inputs, first = operands(step)
        made = step.node(operators[0], *inputs)
        for operator in operators[1:]:
            made = step.node(operator, made)
        step.finish(step.activated(made), first=first)

    return convert


def _clip(low: float, high: float) -> Converter:
    def convert(step: Step) -> None:
        (x,), first = operands(step)
        ends = [step.scalar(end, step.index(0)) for end in (low, high)]
        step.finish(step.node("Clip", x, *ends), first=first)

    return convert


def _square(step: Step) -> None:
    (x,), first = operands(step)
    step.finish(step.node("Mul", x, x), first=first)


def _squared_difference(step: Step) -> None:
    inputs, first = operands(step)
    difference = step.node("Sub", *inputs)
    step.finish(step.node("Mul", difference, difference), first=first)


def _leaky_relu(step: Step) -> None:
    (x,), first = operands(step)
    step.finish(step.node("LeakyRelu", x, alpha=float(step.option("Alpha", 0.0))), first=first)


def _gelu(step: Step) -> None:
    (x,), first = operands(step)
    kind = "tanh" if step.option("Approximate", False) else "none"
    step.finish(step.node("Gelu", x, approximate=kind), first=first)


def _prelu(step: Step) -> None:
    (x, slope), first = operands(step, [0, 1])
    step.finish(step.node("PRelu", x, slope), first=first)


def _add_n(step: Step) -> None:
    inputs, first = operands(step)
    made = inputs[0]
    for one in inputs[1:]:
        made = step.node("Add", made, one)
    step.finish(made, first=first)


def _floor_div(step: Step) -> None:
    (a, b), first = operands(step, [0, 1])
    if _is_float(step):
        made = step.node("Floor", step.node("Div", a, b))
    else:  # what is left over has the divisor's sign
        made = step.node("Div", step.node("Sub", a, step.node("Mod", a, b)), b)
    step.finish(made, first=first)


def _floor_mod(step: Step) -> None:
    (a, b), first = operands(step, [0, 1])
    if _is_float(step):
        whole = step.node("Floor", step.node("Div", a, b))
        made = step.node("Sub", a, step.node("Mul", whole, b))
    else:
        made = step.node("Mod", a, b)
    step.finish(made, first=first)


def _is_float(step: Step) -> bool:
    tensor = step.tensor(0)
    return tensor.is_quantized or tensor.dtype.startswith("float")


def _select(step: Step) -> None:
    condition, chosen = step.shape(0), step.shape(1)
    if step.operator.kind == "SELECT" and len(condition) == 1 and len(chosen) > 1:
        # A list of conditions chooses whole rows here.
        name = step.values.reshaped(step.index(0), [*condition, *[1] * (len(chosen) - 1)])
        step.finish(step.node("Where", name, *(step.values.get(step.index(i)) for i in (1, 2))))
        return
    inputs, first = operands(step, [0, 1, 2])
    step.finish(step.node("Where", *inputs), first=first)


def _cast(step: Step) -> None:
    source, index = step.index(0), step.output()
    dtype = np.dtype(step.values.tensor(index).dtype)
    data = step.values.constant(source)
    if data is not None and not step.tensor(0).is_quantized:
        step.values.set_constant(index, data.astype(dtype))
        return
    first = step.values.is_first_only(source)
    name = step.values.get(source, first=first, raw=True)
    made = step.node("Cast", name, to=helper.np_dtype_to_tensor_dtype(dtype))
    step.finish(made, first=first, raw=True)


def _dequantize(step: Step) -> None:
    source, index = step.index(0), step.output()
    tensor = step.values.tensor(source)
    if not tensor.is_quantized and tensor.dtype != "float16":
        raise unsupported_form(step.operator, f"its input of {tensor.dtype} has no scale")
    data = step.values.constant(source)
    if data is not None:
        step.values.set_constant(index, data, tensor.quantization if tensor.is_quantized else None)
        return
    first = step.values.is_first_only(source)
    name = step.values.get(source, first=first)
    if not tensor.is_quantized:
        name = step.node("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype("float32")))
    step.finish(name, first=first)


def _quantize(step: Step) -> None:
    if not step.values.tensor(step.output()).is_quantized:
        raise unsupported_form(step.operator, "its output has no scale")
    first = step.values.is_first_only(step.index(0))
    step.finish(step.values.get(step.index(0), first=first), first=first)


def _zeros_like(step: Step) -> None:
    tensor = step.values.tensor(step.output())
    zero = step.scalar(0, step.output())
    if tensor.shape != step.shape(0):
        raise bad_file(
            f"{step.operator.place}: zeros of {list(tensor.shape)} are not like {list(step.shape(0))}"
        )
    step.finish(step.node("Expand", zero, step.writer.ints(tensor.shape)))


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
