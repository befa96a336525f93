"""The kernel that makes probabilities of classes of those of pairs: Wu, Lin and Weng's second method, as LIBSVM and ONNX Runtime have it."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.tvm.base.tir import CPU_ONLY, IS_SCHEDULED, OPAQUE

_ROUNDS = 100
_TOLERANCE = 0.005
"""How far a row may be from the solution, times the number of classes: ONNX Runtime's, so that both stop after the same round."""


def coupling_kernel(rows: Any, classes: int) -> tirx.PrimFunc:
    """Return the kernel from probabilities of pairs ``[rows, classes, classes]`` to those of classes ``[rows, classes]``, for CPUs.

    Args:
        rows: Their number; an expression if it is open.
        classes: The element ``[i, j]`` of a row is the probability of class i, of the two. The diagonal is zero.
    """
    count = rows if isinstance(rows, int) else tirx.Var("rows", "int64")
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr(
            {"tirx.noalias": True, IS_SCHEDULED: True, "op_pattern": OPAQUE, CPU_ONLY: "SVMClassifier"}
        )
        pairs = T.arg("pairs", T.Buffer((count, classes, classes), "float32"))
        result = T.arg("result", T.Buffer((count, classes), "float32"))
        with T.sblock("coupling"):
            T.reads([pairs[0:count, 0:classes, 0:classes]])
            T.writes([result[0:count, 0:classes]])
            with T.serial(count) as row:
                _write_row(pairs, result, row, classes)
    func: tirx.PrimFunc = builder.get().without_attr("global_symbol")
    return func


def _write_row(pairs: Any, result: Any, row: Any, classes: int) -> None:
    zero = tirx.const(0, "float32")
    matrix = T.sblock_alloc_buffer((classes, classes), "float32")
    product = T.sblock_alloc_buffer((classes,), "float32")  # of the matrix and the result
    form = T.sblock_alloc_buffer((1,), "float32")  # of the result, the matrix and the result
    error = T.sblock_alloc_buffer((1,), "float32")
    step = T.sblock_alloc_buffer((1,), "float32")
    with T.serial(classes) as i:
        T.buffer_store(result, tirx.const(1 / classes, "float32"), [row, i])
        T.buffer_store(error, zero, [0])
        with T.serial(classes) as j:
            T.buffer_store(matrix, -pairs[row, j, i] * pairs[row, i, j], [i, j])
            T.buffer_store(error, error[0] + pairs[row, j, i] * pairs[row, j, i], [0])
        T.buffer_store(matrix, error[0], [i, i])
    T.buffer_store(error, tirx.const(1, "float32"), [0])
    limit = tirx.const(_TOLERANCE / classes, "float32")
    with T.serial(_ROUNDS), T.If(error[0] >= limit), T.Then():
        T.buffer_store(form, zero, [0])
        with T.serial(classes) as i:
            T.buffer_store(product, zero, [i])
            with T.serial(classes) as j:
                T.buffer_store(product, product[i] + matrix[i, j] * result[row, j], [i])
            T.buffer_store(form, form[0] + result[row, i] * product[i], [0])
        T.buffer_store(error, zero, [0])
        with T.serial(classes) as i:
            T.buffer_store(error, tirx.max(error[0], tirx.abs(product[i] - form[0])), [0])
        with T.If(error[0] >= limit), T.Then(), T.serial(classes) as i:
            T.buffer_store(step, (form[0] - product[i]) / matrix[i, i], [0])
            T.buffer_store(result, result[row, i] + step[0], [row, i])
            norm = step[0] + tirx.const(1, "float32")
            grown = form[0] + step[0] * (step[0] * matrix[i, i] + tirx.const(2, "float32") * product[i])
            T.buffer_store(form, grown / norm / norm, [0])
            with T.serial(classes) as j:
                T.buffer_store(product, (product[j] + step[0] * matrix[i, j]) / norm, [j])
                T.buffer_store(result, result[row, j] / norm, [row, j])
