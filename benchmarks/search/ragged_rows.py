"""Time untuned kernels whose rows no vector divides: products of an attention, softmax, normalisations.

    taskset -c 0,1 env TVM_NUM_THREADS=2 python -m benchmarks.search.ragged_rows --output rows.json [--before older.json]

The rows are those of common networks: 196 and 197 patches of an image, 49 and 50 of a window, 77 words, 1,500 frames of speech, 100 boxes. Another
checkout's figures stand beside with `--before`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import tvm
from benchmarks.search.machine import cores_target
from benchmarks.search.markdown import print_table
from tvm import te, topi

from tunefarm_tuning.tvm.base.relax_graph import static_shape
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import packed_default_schedule

_SAMPLES, _SAMPLE_SEC = 31, 0.01


def scores(heads: int, rows: int, depth: int) -> tuple[str, list[Any]]:
    """Return the products of queries and keys of an attention, with something added to them."""
    q = te.placeholder(int64_sizes((heads, rows, depth)), name="q")
    k = te.placeholder(int64_sizes((heads, depth, rows)), name="k")
    mask = te.placeholder(int64_sizes((heads, rows, rows)), name="mask")
    sums = topi.nn.batch_matmul(q, k, transpose_b=False)
    return f"{heads} products {rows} x {depth} x {rows}", [q, k, mask, topi.add(sums, mask)]


def product(rows: int, depth: int, columns: int) -> tuple[str, list[Any]]:
    x = te.placeholder(int64_sizes((rows, depth)), name="x")
    y = te.placeholder(int64_sizes((depth, columns)), name="y")
    return f"product {rows} x {depth} x {columns}", [x, y, topi.nn.matmul(x, y)]


def softmax(rows: int, columns: int) -> tuple[str, list[Any]]:
    x = te.placeholder(int64_sizes((rows, columns)), name="x")
    return f"softmax, {rows} x {columns}", [x, topi.nn.softmax(x, axis=-1)]


def normalisation(rows: int, columns: int) -> tuple[str, list[Any]]:
    x = te.placeholder(int64_sizes((rows, columns)), name="x")
    scale, shift = (te.placeholder(int64_sizes((columns,)), name=name) for name in ("scale", "shift"))
    return f"layer norm, {rows} x {columns}", [
        x,
        scale,
        shift,
        topi.nn.layer_norm(x, scale, shift, [1], 1e-5),
    ]


KERNELS = (
    *(scores(*sizes) for sizes in ((5, 196, 32), (3, 197, 64), (4, 196, 16), (16, 49, 32), (8, 77, 64))),
    *(scores(*sizes) for sizes in ((6, 1500, 64), (4, 100, 32), (3, 257, 64), (12, 128, 64))),
    *(product(*sizes) for sizes in ((64, 64, 116), (64, 64, 20))),
    *(softmax(*sizes) for sizes in ((980, 196), (980, 197), (980, 192), (600, 1500), (2000, 100))),
    *(normalisation(*sizes) for sizes in ((784, 180), (784, 100), (784, 192))),
)
"""Names and tensors, the result last; 192 and 128 for comparison."""


def latency_us(tensors: Sequence[Any]) -> float:
    """Return the median of a kernel's latencies by its default schedule, in microseconds."""
    target = cores_target(2)
    kernel = packed_default_schedule(te.create_prim_func(list(tensors), index_dtype_override="int64"), target)
    with tvm.transform.PassContext(config={**SPLIT_TAILS, "tirx.disable_assert": True}):
        func = kernel.func.with_attr("global_symbol", "kernel")
        built = tvm.tirx.build(tvm.IRModule({"kernel": func}), tvm_target(target))["kernel"]
    rng = np.random.default_rng(0)
    arguments = [
        tvm.runtime.tensor(rng.normal(size=static_shape(parameter) or ()).astype(np.float32))
        for parameter in func.params
    ]
    built(*arguments)
    began = time.perf_counter()
    built(*arguments)
    calls = max(1, int(_SAMPLE_SEC / (time.perf_counter() - began)))
    samples = []
    for _ in range(_SAMPLES):
        began = time.perf_counter()
        for _ in range(calls):
            built(*arguments)
        samples.append((time.perf_counter() - began) / calls)
    return 1e6 * median(samples)


def main() -> None:
    """Print a row for each kernel."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="JSON: microseconds by kernel")
    parser.add_argument("--before", type=Path, help="another checkout's output")
    options = parser.parse_args()
    before = json.loads(options.before.read_text()) if options.before else {}
    after = {name: latency_us(tensors) for name, tensors in KERNELS}
    options.output.write_text(json.dumps(after, indent=1) + "\n")
    print_table(
        ["Kernel", "Before, µs", "µs", "Ratio"],
        [
            [name, f"{before[name]:.1f}", f"{us:.1f}", f"{us / before[name]:.2f}"]
            if name in before
            else [name, "–", f"{us:.1f}", "–"]
            for name, us in after.items()
        ],
    )


if __name__ == "__main__":
    main()
