"""Multiply the rounded states of recurrent layers (ONNX Runtime's `DynamicQuantizeLSTM`) as bytes, on CPUs with the instruction.

The importer's kernels multiply them as floats, which any CPU can. A matrix of bytes is a quarter as large: that of 512 units fits into the
second cache, and the kernel no longer waits for the third.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tunefarm_tuning.target.dot_products import ByteProducts
from tunefarm_tuning.tvm.base.relax_graph import entry_names, rewrite_main
from tunefarm_tuning.tvm.kernels.dot_products import BYTES
from tunefarm_tuning.tvm.kernels.int8_kernels import MOST_PRODUCTS
from tunefarm_tuning.tvm.kernels.layers.recurrence import RECURRENCES, Recurrence, from_json
from tunefarm_tuning.tvm.kernels.layers.recurrent import recurrent_kernel, tiled_bytes
from tunefarm_tuning.tvm.kernels.weight_packing import kernel_arguments
from tunefarm_tuning.tvm.transform.weights.formats import as_int8

_MATRIX = 1  # the position of the matrix among a direction's arguments


def multiply_rounded_states(mod: tvm.IRModule, instruction: ByteProducts) -> tvm.IRModule:
    """Return the module with its recurrences of rounded states computed with dot products of bytes, if the instruction takes bytes.

    The module's constants are folded.
    """
    if instruction.by_row.products != BYTES.products:
        return mod
    if not any(RECURRENCES in (func.attrs or {}) for func in mod.functions.values()):
        return mod
    rewritten = rewrite_main(mod, _RecurrenceRewriter(mod, instruction))
    result: tvm.IRModule = relax.transform.DeadCodeElimination(entry_names(rewritten))(rewritten)
    return result


@relax.expr_functor.mutator
class _RecurrenceRewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, instruction: ByteProducts) -> None:
        super().__init__(mod)
        self._mod = mod
        self._instruction = instruction

    def visit_call_(self, call: Any) -> Any:
        visited = super().visit_call_(call)
        kernel = visited.args[0] if visited.args else None
        if not isinstance(kernel, tvm.ir.GlobalVar) or RECURRENCES not in (self._mod[kernel].attrs or {}):
            return visited
        cells = from_json(str(self._mod[kernel].attrs[RECURRENCES]))
        args = _arguments(cells, list(kernel_arguments(visited)))
        if args is None:
            return visited
        func = recurrent_kernel(*(replace(cell, byte_lanes=self._instruction.by_row.lanes) for cell in cells))
        in_bytes = self.builder_.add_func(func, f"byte_{kernel.name_hint}")
        return tvm.ir.Call(
            visited.op, [in_bytes, relax.Tuple(args), *visited.args[2:]], visited.attrs, visited.ty_args
        )


def _arguments(cells: Sequence[Recurrence], args: list[Any]) -> list[Any] | None:
    """Return a kernel's arguments with matrices of bytes, their scales and sums; None if a matrix is not of quantised weights."""
    count, left_over = divmod(len(args), len(cells))
    assert not left_over, "all directions have the same arguments"
    result: list[Any] = []
    for number, cell in enumerate(cells):
        own = args[number * count : (number + 1) * count]
        matrix = own[_MATRIX]
        if (
            not isinstance(matrix, tvm.ir.GenericConst)
            or cell.dtype != "float32"
            or cell.hidden > MOST_PRODUCTS
        ):
            return None
        tiles, hidden, columns = (int(size) for size in matrix.value.shape)
        by_column = matrix.value.numpy().transpose(1, 0, 2).reshape(hidden, tiles * columns)
        quantised = as_int8(by_column, 1)
        if quantised is None:
            return None
        steps, scales = quantised
        in_tiles = steps.reshape(hidden, tiles, columns).transpose(1, 0, 2)
        own[_MATRIX : _MATRIX + 1] = [
            relax.const(tiled_bytes(in_tiles), "int8"),
            relax.const(scales, "float32"),
            relax.const(steps.sum(axis=0, dtype=np.int32), "int32"),
        ]
        result += own
    return result
