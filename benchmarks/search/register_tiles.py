"""Time register tiles of untuned convolutions in turns: does the rule choose a tile that is fast on this CPU?

    taskset -c 0,1 env TVM_NUM_THREADS=2 python -m benchmarks.search.register_tiles

Prints GFLOP/s, the best of seven rounds, for the tile that the rule chooses, and for some tiles of rows times vectors. All are of
one kernel, timed in turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import tvm
from benchmarks.search.machine import cores_target
from benchmarks.search.markdown import print_table
from tvm import te, topi

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.default_schedules.cpu import tiled_reductions
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import packed_default_schedule
from tunefarm_tuning.tvm.kernels.weight_packing import with_weights

_CONVOLUTIONS = (
    *((7, 2048, 512, 1), (7, 512, 2048, 1), (14, 1024, 256, 1), (28, 512, 128, 1), (56, 256, 64, 1)),
    *((7, 160, 960, 1), (7, 320, 1280, 1), (14, 96, 576, 1)),
    *((56, 64, 64, 3), (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3)),
)
"""Pixels along each side, channels, results, size of the window: of ResNet-50 and MobileNetV2."""
_TILES = ((7, 1), (2, 4), (4, 2), (5, 2), (6, 2), (3, 3), (4, 3))
_ROUNDS, _SAMPLE_SEC = 7, 0.02


def kernel(size: int, channels: int, results: int, window: int) -> tuple[Any, float]:
    """Return a convolution with a bias and a ReLU as a workload, and its operations."""
    x = te.placeholder(int64_sizes((1, size, size, channels)), name="x")
    weights = te.placeholder(int64_sizes((window, window, channels, results)), name="weights")
    bias = te.placeholder(int64_sizes((1, 1, 1, results)), name="bias")
    pad = window // 2
    sums = topi.nn.conv2d(x, weights, 1, pad, 1, data_layout="NHWC", kernel_layout="HWIO")
    func = te.create_prim_func(
        [x, weights, bias, topi.nn.relu(topi.add(sums, bias))], index_dtype_override="int64"
    )
    return with_weights(func, [1]), 2.0 * size * size * results * window * window * channels


def built(func: Any, name: str, tile: tuple[int, int] | None) -> Callable[[], None]:
    """Return a call of a kernel by the rules, or with a tile of rows and vectors instead of the one that they choose."""
    choose = tiled_reductions.choose_register_tile

    def chosen(*args: Any, **options: Any) -> Any:
        own = choose(*args, **options)
        rows = (*(1 for _ in own.rows[:-1]), tile[0]) if tile else own.rows
        return replace(own, vectors=tile[1], rows=rows, joined=False, overlaps=False) if tile else own

    target = cores_target(2)
    tiled_reductions.choose_register_tile = chosen
    try:
        # Equal kernels are scheduled once: the attribute makes each another.
        scheduled = packed_default_schedule(func.with_attr("benchmarked_as", name), target).func
    finally:
        tiled_reductions.choose_register_tile = choose
    scheduled = scheduled.with_attr("global_symbol", name)
    with tvm.transform.PassContext(config={**SPLIT_TAILS, "tirx.disable_assert": True}):
        module = tvm.tirx.build(tvm.IRModule({name: scheduled}), tvm_target(target))
    rng = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(rng.normal(size=static_shape(parameter) or ()).astype(np.float32))
        for parameter in scheduled.params
    ]
    return lambda: module[name](*arguments)


def best_seconds(calls: Sequence[Callable[[], None]]) -> list[float]:
    """Return the least seconds of each, in turns."""
    best = [float("inf")] * len(calls)
    for _ in range(_ROUNDS):
        for number, call in enumerate(calls):
            call()
            began, count = time.perf_counter(), 0
            while (taken := time.perf_counter() - began) < _SAMPLE_SEC:
                call()
                count += 1
            best[number] = min(best[number], taken / count)
    return best


def main() -> None:
    """Print a row for each convolution."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    rows = []
    for sizes in _CONVOLUTIONS:
        func, operations = kernel(*sizes)
        calls = [
            built(func, f"kernel_{prod(sizes)}_{number}", tile) for number, tile in enumerate((None, *_TILES))
        ]
        size, channels, results, window = sizes
        label = f"{size} x {size} x {channels}, {window} x {window}, {results}"
        rows.append([label, *(f"{operations / seconds / 1e9:.0f}" for seconds in best_seconds(calls))])
    tiles = [f"{rows_} x {vectors}" for rows_, vectors in _TILES]
    print_table(["Convolution", "By rule", *tiles], rows)


if __name__ == "__main__":
    main()
