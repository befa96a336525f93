"""The kernel of determinants: elimination with the largest pivot, one matrix after the other."""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.tvm.base.tir import CPU_ONLY, IS_SCHEDULED, OPAQUE


def determinant_kernel(count: int, size: int, dtype: str) -> tirx.PrimFunc:
    """Return the kernel from matrices ``[count, size, size]`` to their determinants ``[count]``, for CPUs."""
    zero, start = tirx.const(0, dtype), tirx.const(1, dtype)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True, IS_SCHEDULED: True, "op_pattern": OPAQUE, CPU_ONLY: "Det"})
        matrices = T.arg("matrices", T.Buffer((count, size, size), dtype))
        result = T.arg("result", T.Buffer((count,), dtype))
        with T.sblock("determinants"):
            T.reads([matrices[0:count, 0:size, 0:size]])
            T.writes([result[0:count]])
            rows = T.sblock_alloc_buffer((size, size), dtype)
            pivot = T.sblock_alloc_buffer((1,), "int32")
            held = T.sblock_alloc_buffer((1,), dtype)
            with T.serial(count) as number:
                with T.serial(size) as i, T.serial(size) as j:
                    T.buffer_store(rows, matrices[number, i, j], [i, j])
                T.buffer_store(result, start, [number])
                with T.serial(size) as k:
                    T.buffer_store(pivot, k, [0])
                    with T.serial(size) as i:
                        larger = tirx.abs(rows[i, k]) > tirx.abs(rows[pivot[0], k])
                        with T.If(tirx.all(i > k, larger)), T.Then():
                            T.buffer_store(pivot, i, [0])
                    with T.If(pivot[0] != k), T.Then():
                        T.buffer_store(result, -result[number], [number])
                        with T.serial(size) as j:
                            T.buffer_store(held, rows[k, j], [0])
                            T.buffer_store(rows, rows[pivot[0], j], [k, j])
                            T.buffer_store(rows, held[0], [pivot[0], j])
                    T.buffer_store(result, result[number] * rows[k, k], [number])
                    with T.serial(size) as i, T.If(tirx.all(i > k, rows[k, k] != zero)), T.Then():
                        T.buffer_store(held, rows[i, k] / rows[k, k], [0])
                        with T.serial(size) as j:
                            T.buffer_store(rows, rows[i, j] - held[0] * rows[k, j], [i, j])
    func: tirx.PrimFunc = builder.get().without_attr("global_symbol")
    return func
