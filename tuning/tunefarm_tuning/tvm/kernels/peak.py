"""Kernels that measure a device's peak: fused multiply-adds in registers, and a triad through memory.

`fma_module` runs ten independent chains of fused multiply-adds, as wide as the target's vectors, with all operands in registers.
Two such instructions a cycle with a latency of four or five need eight to ten chains; with two registers for the operands,
nothing spills on the sixteen registers of AVX2 either. `fma_loop` checks the assembly: a loop that loads or stores, or that
multiplies and adds apart, is an error rather than a figure.

`triad_module` is the triad of McCalpin's STREAM, ``a = b + s * c``: as there, an element counts as two reads and a write.
"""

# type checkers cannot read TVMScript
# mypy: disable-error-code="no-untyped-def, untyped-decorator, valid-type"

from __future__ import annotations

import re
from typing import Any

import tvm
from tvm.script import tirx as T  # noqa: N812  (as TVM writes it)
from tvm.tirx import build

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import cpu_features, tvm_target

CHAINS = 10
STEPS = 1 << 19
"""About a millisecond: short enough that some samples share the core with nothing else."""

ITEMSIZE = {"float32": 4, "float64": 8}
_VECTORS = 4  # of the triad, per iteration of its loop


def vector_bytes(target: Target) -> int:
    """Return the size of the target's vector registers in bytes; TVM's own figure is 64 for a CPU with only AVX2."""
    features = cpu_features(target)
    return 64 if "avx512f" in features else 32 if "avx2" in features else 16


def fma_module(dtype: str, lanes: int, threads: int) -> tvm.IRModule:
    """Return ``main(start, factor, term, out)``: each thread computes ``STEPS`` times ``chain + factor * term``.

    `start` and `out` are ``[threads, CHAINS × lanes]``, `factor` and `term` ``[lanes]``.

    Args:
        dtype: ``"float32"`` or ``"float64"``.
        lanes: Elements of a vector.
        threads: Number of threads.
    """
    size = lanes * CHAINS

    @T.prim_func(s_tir=True)
    def main(
        start: T.Buffer((threads, size), dtype),
        factor: T.Buffer((lanes,), dtype),
        term: T.Buffer((lanes,), dtype),
        out: T.Buffer((threads, size), dtype),
    ):
        T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        for thread in T.parallel(threads):
            with T.sblock(""):
                T.reads(start[thread, 0:size], factor[0:lanes], term[0:lanes])
                T.writes(out[thread, 0:size])
                acc = T.alloc_buffer((size,), dtype, scope="local")
                for chain in T.unroll(CHAINS):
                    for lane in T.vectorized(lanes):
                        acc[chain * lanes + lane] = start[thread, chain * lanes + lane]
                for _step in T.serial(STEPS):
                    for chain in T.unroll(CHAINS):
                        for lane in T.vectorized(lanes):
                            acc[chain * lanes + lane] = T.fma(
                                factor[lane], term[lane], acc[chain * lanes + lane]
                            )
                for chain in T.unroll(CHAINS):
                    for lane in T.vectorized(lanes):
                        out[thread, chain * lanes + lane] = acc[chain * lanes + lane]

    return tvm.IRModule({"main": main})


def triad_module(lanes: int, threads: int) -> tvm.IRModule:
    """Return ``fill``, ``triad`` and ``wrong`` with vectors of `lanes` float32. Each thread has its own part of the arrays.

    - ``fill(b, c)`` writes small whole numbers.
    - ``triad(a, b, c, size, turns)`` walks over the arrays `turns` times, with the factors 0 to ``turns - 1``.
    - ``wrong(a, size, turns, found)`` counts each thread's wrong results.

    `size` is the number of elements of a thread's part, a multiple of `triad_step`.
    """
    step = triad_step(lanes)

    @T.prim_func(s_tir=True)
    def fill(b_: T.handle, c_: T.handle):
        T.func_attr({"tirx.noalias": True, "global_symbol": "fill"})
        total = T.int64()
        b = T.match_buffer(b_, (total,), "float32")
        c = T.match_buffer(c_, (total,), "float32")
        for i in T.parallel(total):
            b[i] = T.Cast("float32", i % T.int64(8))
            c[i] = T.Cast("float32", i % T.int64(4))

    @T.prim_func(s_tir=True)
    def triad(a_: T.handle, b_: T.handle, c_: T.handle, size: T.int64, turns: T.int64):
        T.func_attr({"tirx.noalias": True, "global_symbol": "triad"})
        total = T.int64()
        a = T.match_buffer(a_, (total,), "float32")
        b = T.match_buffer(b_, (total,), "float32")
        c = T.match_buffer(c_, (total,), "float32")
        for thread in T.parallel(T.int64(threads)):
            for turn in T.serial(turns):
                for i in T.serial(size // T.int64(step)):
                    for vector in T.unroll(_VECTORS):
                        for lane in T.vectorized(lanes):
                            a[thread * size + i * T.int64(step) + vector * lanes + lane] = (
                                b[thread * size + i * T.int64(step) + vector * lanes + lane]
                                + T.Cast("float32", turn)
                                * c[thread * size + i * T.int64(step) + vector * lanes + lane]
                            )

    @T.prim_func(s_tir=True)
    def wrong(a_: T.handle, size: T.int64, turns: T.int64, mismatches: T.Buffer((threads,), "int64")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "wrong"})
        total = T.int64()
        a = T.match_buffer(a_, (total,), "float32")
        for thread in T.parallel(T.int64(threads)):
            mismatches[thread] = T.int64(0)
            for i in T.serial(size):
                mismatches[thread] = mismatches[thread] + T.Cast(
                    "int64",
                    a[thread * size + i]
                    != T.Cast(
                        "float32",
                        (thread * size + i) % T.int64(8)
                        + (turns - T.int64(1)) * ((thread * size + i) % T.int64(4)),
                    ),
                )

    return tvm.IRModule({"fill": fill, "triad": triad, "wrong": wrong})


def triad_step(lanes: int) -> int:
    """Return the number of elements that must divide a thread's part of the arrays."""
    return lanes * _VECTORS


def build_kernels(module: tvm.IRModule, target: Target) -> Any:
    """Build a module for the target."""
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        return build(module, target=tvm_target(target))


def assembly_of(module: Any) -> str:
    """Return the assembly of a built module."""
    if str(module.kind) == "llvm":
        return str(module.inspect_source("s"))
    for part in module.imports:
        if text := assembly_of(part):
            return text
    return ""


def fma_loop(assembly: str) -> list[str]:
    """Return the instructions of the innermost loop with the most fused multiply-adds.

    Raises:
        InvariantError: If there is none, or the loop does more than multiply-adds on registers and counting.
    """
    best: list[str] = []
    block: list[str] = []
    for line in (line.strip() for line in assembly.splitlines()):
        if re.match(r"\.L(BB|_)\w*:", line):
            block = []
        elif line and not line.startswith((".", "#")) and not line.endswith(":"):
            block.append(line)
            is_back = re.match(r"j\w+\s|b(\.\w+)?\s|cbn?z\s", line)
            if is_back and sum(map(_is_fma, block)) > sum(map(_is_fma, best)):
                best = list(block)
    fmas = [line for line in best if _is_fma(line)]
    if len(fmas) < CHAINS or len(fmas) % CHAINS:
        raise InvariantError(f"the loop has {len(fmas)} fused multiply-adds, not a multiple of {CHAINS}")
    touching = [line for line in best if re.search(r"\(|\[", line)]
    if touching or len(best) - len(fmas) > 4:
        raise InvariantError(f"the loop does more than multiply and add: {touching or best}")
    return best


def _is_fma(line: str) -> bool:
    return line.startswith(("vfmadd", "fmla"))
