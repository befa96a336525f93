"""Operators over whole dimensions: sums, means, maxima, softmax, norms, the largest few."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto, helper

from tunefarm_convert.tflite.graph import unsupported_form
from tunefarm_convert.tflite.step import Converter, Step
from tunefarm_convert.tflite.values import TO_FIRST

_SMALLEST_NORM = 1e-6
"""TFLite's, below which it divides by this."""


def _stays_first(step: Step, axes: list[int], *, keep: bool) -> bool:
    """Tell whether to reduce an image with its channels first: what is left must come in the file's order."""
    index = step.index(0)
    if not step.prefers_first(index):
        return False
    left = [i for i in TO_FIRST if i not in axes]
    return keep or left == sorted(left)


def _moved(axes: list[int], *, first: bool) -> list[int]:
    return [TO_FIRST.index(axis) for axis in axes] if first else axes


def _reduce(operator: str) -> Converter:
    def convert(step: Step) -> None:
        rank = len(step.shape(0))
        axes = sorted({step.axis(a, rank) for a in step.ints(1, "the list of dimensions")})
        keep = bool(step.option("KeepDims", False))
        first = _stays_first(step, axes, keep=keep)
        x = step.values.get(step.index(0), first=first)
        if not axes:
            step.finish(x, first=first)
            return
        of_booleans = step.tensor(0).dtype == "bool"
        if of_booleans:
            x = step.node("Cast", x, to=TensorProto.INT32)
        made = step.node(operator, x, step.writer.ints(_moved(axes, first=first)), keepdims=int(keep))
        if of_booleans:
            made = step.node("Cast", made, to=TensorProto.BOOL)
        step.finish(made, first=first and keep)

    return convert


def _arg(operator: str) -> Converter:
    def convert(step: Step) -> None:
        axes = [step.axis(a, len(step.shape(0))) for a in step.ints(1, "the dimension")]
        if len(axes) != 1:
            raise unsupported_form(step.operator, f"{len(axes)} dimensions")
        first = _stays_first(step, axes, keep=False)
        x = step.values.get(step.index(0), first=first)
        made = step.node(operator, x, axis=_moved(axes, first=first)[0], keepdims=0)
        dtype = step.values.tensor(step.output()).dtype
        if dtype != "int64":
            made = step.node("Cast", made, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        step.finish(made)

    return convert


def _softmax(operator: str) -> Converter:
    def convert(step: Step) -> None:
        rank = len(step.shape(0))
        first = step.prefers_first(step.index(0))
        x = step.values.get(step.index(0), first=first)
        beta = float(step.option("Beta", 1.0)) if operator == "Softmax" else 1.0
        if beta != 1.0:
            x = step.node("Mul", x, step.scalar(beta, step.index(0)))
        step.finish(step.node(operator, x, axis=1 if first else rank - 1), first=first)

    return convert


def _l2_normalization(step: Step) -> None:
    rank = len(step.shape(0))
    first = step.prefers_first(step.index(0))
    x = step.values.get(step.index(0), first=first)
    norm = step.node("ReduceL2", x, step.writer.ints([1 if first else rank - 1]), keepdims=1)
    norm = step.node("Max", norm, step.scalar(_SMALLEST_NORM, step.index(0)))
    step.finish(step.activated(step.node("Div", x, norm)), first=first)


def _top_k(step: Step) -> None:
    count = step.ints(1, "how many are wanted")
    indices = step.values.tensor(step.output(1)).dtype
    x = step.values.get(step.index(0))
    place = step.writer.place
    values, found = step.writer.nodes(
        "TopK", [x, step.writer.ints(count)], [f"{place}_values", f"{place}_indices"], axis=-1
    )
    step.finish(values)
    if indices != "int64":
        found = step.node("Cast", found, to=helper.np_dtype_to_tensor_dtype(np.dtype(indices)))
    step.finish(found, position=1)


def _cumsum(step: Step) -> None:
    axis = [step.axis(a, len(step.shape(0))) for a in step.ints(1, "the dimension")]
    made = step.node(
        "CumSum",
        step.values.get(step.index(0)),
        step.writer.weight(np.array(axis[0], np.int64)),
        exclusive=int(bool(step.option("Exclusive", False))),
        reverse=int(bool(step.option("Reverse", False))),
    )
    step.finish(made)


CONVERTERS: Mapping[str, Converter] = {
    "MEAN": _reduce("ReduceMean"),
    "SUM": _reduce("ReduceSum"),
    "REDUCE_MAX": _reduce("ReduceMax"),
    "REDUCE_MIN": _reduce("ReduceMin"),
    "REDUCE_PROD": _reduce("ReduceProd"),
    "REDUCE_ANY": _reduce("ReduceMax"),
    "REDUCE_ALL": _reduce("ReduceMin"),
    "ARG_MAX": _arg("ArgMax"),
    "ARG_MIN": _arg("ArgMin"),
    "SOFTMAX": _softmax("Softmax"),
    "LOG_SOFTMAX": _softmax("LogSoftmax"),
    "L2_NORMALIZATION": _l2_normalization,
    "TOPK_V2": _top_k,
    "CUMSUM": _cumsum,
}
