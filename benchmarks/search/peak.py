"""Measure the peak floating-point throughput of one core of this machine.

    python -m benchmarks.search.peak [--target "llvm -mcpu=haswell"] [--assembly]

The kernel is the engine's own (`tunefarm_tuning.tvm.kernels.peak` says how it is made and looked through), with which a
farm measures its devices; here all samples of one core are shown.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from statistics import median
from typing import Any

from benchmarks.search.machine import one_core_target

from tunefarm_tuning.core.errors import InvariantError
from tunefarm_tuning.process import ChildLimits, ChildProcess
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target

_ITEMSIZE_BYTES = 4  # of float32
_GOES = 10  # a go ends once nothing faster came for a while: the more there are, the likelier one met a quiet core


def measure_peak(target: Target | None = None, *, goes: int = _GOES) -> dict[str, Any]:
    """Return ``gflops`` (the median), ``fastest_gflops``, ``lanes``, ``instruction`` and ``assembly`` of its loop.

    On a quiet machine the two figures agree. Shares of the peak are taken of the larger, so that they cannot flatter.

    Raises:
        InvariantError: If the target's compiler makes no plain loop of fused multiply-adds.
    """
    with (
        closing(ScratchDir()) as scratch,
        closing(
            ChildProcess(
                "tunefarm_tuning.tvm.children.peak",
                limits=ChildLimits(memory_bytes=None),
                access=None,
                env={"TVM_NUM_THREADS": "1"},
            )
        ) as process,
    ):
        target = target or one_core_target()
        request = {
            "target": target.to_json(),
            "threads": 1,
            "dtypes": ["float32"],
            "work_dir": str(scratch.path),
        }
        built = process.call("build", request, timeout_sec=300)
        if built["missing"]:
            raise InvariantError(built["missing"]["float32"])
        rates: list[float] = []
        for _ in range(goes):
            # Without memory for its arrays, there is no triad.
            measured = process.call("run", {"address": None, "memory_bytes": 0}, timeout_sec=300)
            rates += measured["flops_per_sec"]["float32"]["1"]
    loop = built["loops"]["float32"]
    return {
        "gflops": median(rates) / 1e9,
        "fastest_gflops": max(rates) / 1e9,
        "lanes": built["vector_bytes"] // _ITEMSIZE_BYTES,
        "instruction": loop[0].split()[0],
        "assembly": loop,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", type=parse_target, help="another target of this very machine")
    parser.add_argument("--goes", type=int, default=_GOES, help="how often the core is measured")
    parser.add_argument("--assembly", action="store_true", help="show the loop as well")
    options = parser.parse_args()
    peak = measure_peak(options.target, goes=options.goes)
    print(
        f"{peak['fastest_gflops']:.1f} GFLOP/s at best, {peak['gflops']:.1f} in the median "
        f"({peak['lanes']} lanes, {peak['instruction']})"
    )
    if options.assembly:
        print("\n".join(peak["assembly"]))


if __name__ == "__main__":
    main()
