"""Elementwise operators, comparisons, and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tflite_zoo.cases import RELU, RELU_N1_TO_1, ZOO, Case, Net, case


def _unary(kind: str, *, positive: bool = False, options: str = "", **fields: Any) -> None:
    def make() -> Case:
        net = Net()
        x = net.input((2, 3, 4))
        if positive:
            x = net.op("ABS", [x], (2, 3, 4))
        return net.case(net.op(kind, [x], (2, 3, 4), options=options, fields=fields))

    ZOO[kind.lower() + "".join(f"_{k}_{v}".lower() for k, v in fields.items())] = make


ALONE = ("ABS", "NEG", "EXP", "SIN", "COS", "SQUARE", "FLOOR", "CEIL", "ROUND", "SIGN", "RELU", "RELU6")
for _kind in (*ALONE, "RELU_N1_TO_1", "RELU_0_TO_1", "TANH", "LOGISTIC", "HARD_SWISH", "ELU", "ZEROS_LIKE"):
    _unary(_kind)
for _kind in ("LOG", "SQRT", "RSQRT"):
    _unary(_kind, positive=True)
_unary("LEAKY_RELU", options="LeakyReluOptions", Alpha=0.3)
_unary("GELU", options="GeluOptions", Approximate=False)
_unary("GELU", options="GeluOptions", Approximate=True)
_unary("SOFTMAX", options="SoftmaxOptions", Beta=1.0)
_unary("SOFTMAX", options="SoftmaxOptions", Beta=0.5)
_unary("LOG_SOFTMAX", options="LogSoftmaxOptions")
_unary("L2_NORMALIZATION", options="L2NormOptions")


def _binary(
    kind: str, options: str = "", out: str = "float32", dtype: str = "float32", **fields: Any
) -> None:
    def make() -> Case:
        net = Net()
        a, b = net.input((2, 3, 4), dtype), net.input((3, 1), dtype)
        if kind == "POW":
            a = net.op("ABS", [a], (2, 3, 4))
        return net.case(net.op(kind, [a, b], (2, 3, 4), out, options, fields), low=1, high=9)

    name = "_".join([kind.lower(), dtype, *(f"{k}_{v}".lower() for k, v in fields.items())])
    ZOO[name] = make


for _kind, _options in (
    ("ADD", "AddOptions"),
    ("SUB", "SubOptions"),
    ("MUL", "MulOptions"),
    ("DIV", "DivOptions"),
):
    _binary(_kind, _options)
    _binary(_kind, _options, FusedActivationFunction=RELU)
    _binary(_kind, _options, "int32", "int32")
_binary("ADD", "AddOptions", FusedActivationFunction=RELU_N1_TO_1)
for _kind in ("POW", "MAXIMUM", "MINIMUM", "FLOOR_DIV", "FLOOR_MOD", "SQUARED_DIFFERENCE"):
    _binary(_kind)
for _kind in ("FLOOR_DIV", "FLOOR_MOD", "MAXIMUM"):
    _binary(_kind, out="int32", dtype="int32")
for _kind in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"):
    _binary(_kind, out="bool")
    _binary(_kind, out="bool", dtype="int32")
for _kind in ("LOGICAL_AND", "LOGICAL_OR"):
    _binary(_kind, out="bool", dtype="bool")


@case
def logical_not() -> Case:
    net = Net()
    return net.case(net.op("LOGICAL_NOT", [net.input((3, 4), "bool")], (3, 4), "bool"))


def _reduction(
    kind: str, axes: Sequence[int], out: Sequence[int], *, keep: bool = False, image: bool = False
) -> None:
    def make() -> Case:
        net = Net()
        inp = (2, 3, 4, 5)
        x = net.input(inp)
        if image:
            x = net.conv(x, inp, inp)
        fields = {"KeepDims": keep}
        return net.case(net.op(kind, [x, net.ints(*axes)], out, options="ReducerOptions", fields=fields))

    ZOO[f"{kind.lower()}_{'_'.join(map(str, axes))}{'_kept' * keep}{'_image' * image}"] = make


for _kind in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
    _reduction(_kind, (1, -1), (2, 4))
_reduction("MEAN", (1, 2), (2, 5), image=True)
_reduction("MEAN", (1, 2), (2, 1, 1, 5), keep=True, image=True)
_reduction("SUM", (3,), (2, 3, 4), image=True)
_reduction("SUM", (1,), (2, 4, 5), image=True)
_reduction("REDUCE_MAX", (3,), (2, 3, 4, 1), keep=True, image=True)


@case
def reduce_any_and_all() -> Case:
    net = Net()
    x = net.input((4, 3), "bool")
    return net.case(
        net.op("REDUCE_ANY", [x, net.ints(1)], (4,), "bool", "ReducerOptions", {"KeepDims": False}),
        net.op("REDUCE_ALL", [x, net.ints(0)], (3,), "bool", "ReducerOptions", {"KeepDims": False}),
    )


@case
def arg_max_and_min() -> Case:
    net = Net()
    inp = (1, 4, 4, 3)
    y = net.conv(net.input(inp), inp, (1, 4, 4, 5))
    axis = net.constant(np.array(3, np.int32))
    return net.case(
        net.op("ARG_MAX", [y, axis], (1, 4, 4), "int64", "ArgMaxOptions", {"OutputType": 4}),
        net.op("ARG_MIN", [y, net.ints(1)], (1, 4, 5), "int32", "ArgMinOptions", {"OutputType": 2}),
    )


@case
def topk_v2() -> Case:
    net = Net()
    values, indices = net.tensor((3, 2)), net.tensor((3, 2), "int32")
    count = net.constant(np.array(2, np.int32))
    net.op_of("TOPK_V2", [net.input((3, 6)), count], [values, indices], "TopKV2Options")
    return net.case(values, indices)


@case
def cumsum() -> Case:
    net = Net()
    axis = net.constant(np.array(1, np.int32))
    fields = {"Exclusive": True, "Reverse": True}
    return net.case(
        net.op("CUMSUM", [net.input((2, 5)), axis], (2, 5), options="CumsumOptions", fields=fields)
    )


@case
def softmax_of_an_image() -> Case:
    net = Net()
    inp = (1, 3, 3, 2)
    y = net.conv(net.input(inp), inp, (1, 3, 3, 4))
    return net.case(net.op("SOFTMAX", [y], (1, 3, 3, 4), options="SoftmaxOptions", fields={"Beta": 1.0}))


@case
def local_response_normalization() -> Case:
    net = Net()
    fields = {"Radius": 2, "Bias": 1.0, "Alpha": 0.3, "Beta": 0.75}
    options = "LocalResponseNormalizationOptions"
    x = net.input((1, 2, 2, 8))
    return net.case(net.op("LOCAL_RESPONSE_NORMALIZATION", [x], (1, 2, 2, 8), options=options, fields=fields))


@case
def cast() -> Case:
    net = Net()
    y = net.op("CAST", [net.input((3, 4))], (3, 4), "int32", "CastOptions")
    return net.case(y, net.op("CAST", [y], (3, 4), "bool", "CastOptions"))


@case
def prelu() -> Case:
    net = Net()
    inp = (1, 4, 4, 2)
    y = net.conv(net.input(inp), inp, (1, 4, 4, 3))
    return net.case(net.op("PRELU", [y, net.weight(1, 1, 3)], (1, 4, 4, 3)))


@case
def add_n() -> Case:
    net = Net()
    return net.case(net.op("ADD_N", [net.input((2, 3)) for _ in range(3)], (2, 3), options="AddNOptions"))


@case
def images_meet_vectors() -> Case:
    """Broadcasting counts from the last dimension, which is another one with the channels first."""
    net = Net()
    inp = (1, 4, 3, 2)
    y = net.conv(net.input(inp), inp, (1, 4, 3, 5))
    y = net.op("MUL", [y, net.weight(5)], (1, 4, 3, 5), options="MulOptions")
    y = net.op("ADD", [y, net.weight(3, 1)], (1, 4, 3, 5), options="AddOptions")
    y = net.op("SUB", [y, net.weight(1, 4, 1, 5)], (1, 4, 3, 5), options="SubOptions")
    y = net.op("MUL", [y, net.constant(np.array([3.0], np.float32))], (1, 4, 3, 5), options="MulOptions")
    return net.case(net.op("ADD", [y, net.input((3, 5))], (1, 4, 3, 5), options="AddOptions"))


def _windows(
    name: str, function: int, dtype: str = "float32", init: float = 0.0, **sizes: Sequence[int]
) -> None:
    """Add a reduction of windows of a tensor of 2 by 7 by 6."""

    def make() -> Case:
        net = Net()
        window, strides, dilations = (
            sizes.get(part, other)
            for part, other in (("window", (1, 3, 2)), ("strides", (1, 1, 1)), ("dilations", (1, 1, 1)))
        )
        shape = [
            (size - (of - 1) * dilation - 1) // stride + 1
            for size, of, stride, dilation in zip((2, 7, 6), window, strides, dilations, strict=True)
        ]
        inputs = [net.input((2, 7, 6), dtype), net.constant(np.array(init, dtype))]
        inputs += [net.constant(np.array(part, np.int64)) for part in (window, strides, dilations)]
        fields = {"ReduceFunction": function}
        return net.case(net.op("REDUCE_WINDOW", inputs, shape, dtype, "ReduceWindowOptions", fields))

    ZOO[f"reduce_window_{name}"] = make


_windows("sum", 1, init=0.5)
_windows("product", 2, init=2.0, strides=(1, 2, 3))
_windows("least", 3, init=1e9, dilations=(1, 2, 3))
_windows("largest_of_int32", 4, "int32", window=(2, 2, 2), strides=(1, 3, 2))
_windows("all", 5, "bool", init=1.0)
_windows("any", 6, "bool")
