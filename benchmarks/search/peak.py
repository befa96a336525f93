"""The most floating-point operations per second that one core of this machine can do.

    python -m benchmarks.search.peak [--target "llvm -mcpu=haswell"] [--assembly]

A kernel made by TVM's own LLVM: ten independent chains of fused multiply-adds, as wide as the target's vectors, all
operands in registers. Two such instructions a cycle with a latency of four or five need eight to ten chains; with two
registers for the operands, nothing spills on the sixteen registers of AVX2 either. The assembly is looked through: a
loop that loads or stores, or multiplies and adds apart, is an error rather than a figure.
"""

from __future__ import annotations

import argparse
import re
from statistics import median
from typing import Any

from benchmarks.search.machine import child, one_core_target

from tunefarm_tuning.errors import InvariantError
from tunefarm_tuning.target import Target
from tunefarm_tuning.targets import parse_target

CHAINS = 10
STEPS = 1 << 16  # about two milliseconds: short enough that some samples meet nothing else on the core
SAMPLES = 400


def measure_peak(target: Target | None = None, *, samples: int = SAMPLES) -> dict[str, Any]:
    """Return ``gflops`` (the median), ``fastest_gflops``, ``lanes``, ``instruction`` and ``assembly`` of its loop.

    On a quiet machine the two figures agree. Shares of the peak are taken of the larger, so that they cannot flatter.
    """
    with child("peak") as process:
        params = {"target": (target or one_core_target()).to_json(), "samples": samples}
        found: dict[str, Any] = process.call("peak", params, timeout_sec=300)
    return found


def _peak(params: dict[str, Any]) -> dict[str, Any]:
    import numpy as np
    import tvm
    from tvm.driver import build
    from tvm.script import tirx as T  # noqa: N812  (as TVM writes it)

    target = tvm.target.Target(params["target"])
    lanes = _lanes({str(name) for name in tvm.get_global_func("target.llvm_get_cpu_features")(target)})
    size = lanes * CHAINS
    float32 = "float32"

    @T.prim_func(s_tir=True)
    def main(
        start: T.Buffer((size,), float32),
        factor: T.Buffer((lanes,), float32),
        term: T.Buffer((lanes,), float32),
        out: T.Buffer((size,), float32),
    ):
        T.func_attr({"tirx.noalias": True, "global_symbol": "main"})
        acc = T.alloc_buffer((size,), float32, scope="local")
        for chain in T.unroll(CHAINS):
            for lane in T.vectorized(lanes):
                acc[chain * lanes + lane] = start[chain * lanes + lane]
        for _step in T.serial(STEPS):
            for chain in T.unroll(CHAINS):
                for lane in T.vectorized(lanes):
                    acc[chain * lanes + lane] = acc[chain * lanes + lane] * factor[lane] + term[lane]
        for chain in T.unroll(CHAINS):
            for lane in T.vectorized(lanes):
                out[chain * lanes + lane] = acc[chain * lanes + lane]

    library = build(tvm.IRModule({"main": main}), target=target)
    loop = fma_loop(_assembly(library.mod if hasattr(library, "mod") else library))
    instruction = loop[0].split()[0]
    rng = np.random.default_rng(0)
    # Every chain tends to 1: neither denormals nor infinities, which would cost time.
    factors = rng.uniform(0.2, 0.8, lanes)
    arrays = [rng.uniform(0.5, 1.5, size), factors, 1.0 - factors, np.zeros(size)]
    args = [tvm.runtime.tensor(array.astype(float32)) for array in arrays]
    timed = library.time_evaluator("main", tvm.cpu(), number=1, repeat=int(params["samples"]))(*args)
    if not np.allclose(args[-1].numpy(), 1.0, atol=1e-3):
        raise InvariantError("the kernel computes something else")
    rates = [2.0 * size * STEPS / float(sec) / 1e9 for sec in timed.results]
    return {
        "gflops": median(rates),
        "fastest_gflops": max(rates),
        "lanes": lanes,
        "instruction": instruction,
        "assembly": loop,
    }


def _lanes(features: set[str]) -> int:
    """Return the floats of a vector; TVM's own figure for it says 512 bits for a CPU that only has AVX2."""
    return 16 if "avx512f" in features else 8 if "avx2" in features else 4


def _assembly(module: Any) -> str:
    if str(module.kind) == "llvm":
        return str(module.inspect_source("s"))
    for part in module.imports:
        if text := _assembly(part):
            return text
    return ""


def fma_loop(assembly: str) -> list[str]:
    """Return the instructions of the innermost loop that multiplies and adds.

    Raises:
        InvariantError: If there is none, or it does anything but fused multiply-adds on registers and counting.
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


HANDLERS = {"peak": _peak}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=parse_target, help="another target of this very machine")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--assembly", action="store_true", help="show the loop as well")
    options = parser.parse_args()
    peak = measure_peak(options.target, samples=options.samples)
    print(
        f"{peak['fastest_gflops']:.1f} GFLOP/s at best, {peak['gflops']:.1f} in the median "
        f"({peak['lanes']} lanes, {peak['instruction']})"
    )
    if options.assembly:
        print("\n".join(peak["assembly"]))


if __name__ == "__main__":
    main()
