"""Compare tiles that leave a tail with perfect tiles alone: the best kernels after equally many trials.

    taskset -c 1 env TVM_NUM_THREADS=1 python -m benchmarks.tail_tiles --trials 64 --seeds 2 > table.md

Each side searches the same space, for one core; the one without tails is not told of them. Sides and seeds take turns, figures
are medians over the seeds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import tvm
from benchmarks.search.machine import one_core_target
from benchmarks.search.markdown import print_table
from tvm import te, tirx, topi

from tunefarm_tuning import LocalBuilder, LocalRunner
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.search.round import run_round
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.tuner import make_tuner
from tunefarm_tuning.tvm.base.serialization import module_to_text
from tunefarm_tuning.tvm.kernels.weight_packing import with_weights
from tunefarm_tuning.tvm.tasks.extract import kernel_args, kernel_flops
from tunefarm_tuning.tvm.tasks.workload_key import workload_key
from tunefarm_tuning.workload.task import TuningTask, Workload

_ROUND_SIZE = 8


def dense(rows: int, columns: int, inner: int) -> Workload:
    data, weight = tensor("data", rows, inner), tensor("weight", inner, columns)
    bias = tensor("bias", columns)
    return workload([data, weight, bias, topi.add(topi.matmul(data, weight), bias)], weight=1)


def products(count: int, rows: int, columns: int, inner: int) -> Workload:
    left, right = tensor("left", count, rows, inner), tensor("right", count, inner, columns)
    return workload([left, right, topi.nn.batch_matmul(left, right, transpose_b=False)])


def conv(size: int, channels: int, kernel: int = 1) -> Workload:
    data = tensor("data", 1, size, size, channels)
    weight, bias = tensor("weight", kernel, kernel, channels, channels), tensor("bias", 1, 1, 1, channels)
    conv = topi.nn.conv2d_nhwc(data, weight, 1, kernel // 2, 1)
    return workload([data, weight, bias, topi.nn.relu(topi.add(conv, bias))], weight=1)


FORMS: dict[str, Callable[[], Workload]] = {
    "dense 197 x 768 x 768": lambda: dense(197, 768, 768),
    "dense 197 x 3072 x 768": lambda: dense(197, 3072, 768),
    "dense 197 x 768 x 3072": lambda: dense(197, 768, 3072),
    "12 products 197 x 197 x 64": lambda: products(12, 197, 197, 64),
    "12 products 197 x 64 x 197": lambda: products(12, 197, 64, 197),
    "conv 1x1, 58 channels, 28²": lambda: conv(28, 58),
    "conv 1x1, 116 channels, 28²": lambda: conv(28, 116),
    "conv 1x1, 116 channels, 14²": lambda: conv(14, 116),
    "dense 128 x 768 x 768": lambda: dense(128, 768, 768),
    "conv 3x3, 64 channels, 56²": lambda: conv(56, 64, 3),
}


def tensor(name: str, *shape: int) -> Any:
    """Return an argument with 64-bit extents, as networks have them."""
    return te.placeholder(int64s(shape), "float32", name=name)


def int64s(values: Sequence[int]) -> list[Any]:
    return [tirx.IntImm("int64", value) for value in values]


def workload(tensors: list[Any], weight: int | None = None) -> Workload:
    func = te.create_prim_func(tensors).with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    func = func if weight is None else with_weights(func, [weight])
    module = tvm.IRModule({"main": func})
    return Workload(
        key=workload_key(func),
        name="form",
        flops=kernel_flops(module),
        args=kernel_args(module),
        ir=module_to_text(module),
    )


def without_tails(space: ConfigSpace) -> ConfigSpace:
    """Return a space with perfect tiles alone; its configs also belong to the full space."""
    sketches = [
        replace(sketch, knobs=tuple(replace(knob, tail_products=()) for knob in sketch.knobs))
        for sketch in space.sketches
    ]
    return ConfigSpace(sketches, space.computation)


def search(task: TuningTask, *, tails: bool, trials: int, seed: int) -> tuple[float, float]:
    """Return the seconds of the best kernel, and those of the search."""
    began = time.monotonic()
    with LocalBuilder() as builder, LocalRunner(threads=1) as runner:
        space = builder.config_space(task)
        option = MeasureOption(builder=builder, runner=runner)
        tuner = make_tuner("xgb", task, space if tails else without_tails(space), seed=seed)
        best_sec: float | None = None
        done = 0
        while done < trials:
            results = run_round(tuner, task, min(_ROUND_SIZE, trials - done), option, best_sec=best_sec)
            if not results:
                break
            done += sum(result.is_trial for result in results)
            costs = [result.cost_sec for result in results if result.cost_sec is not None]
            best_sec = min([*costs, *([] if best_sec is None else [best_sec])], default=None)
        tuner.close()
    if best_sec is None:
        raise SystemExit(f"no kernel of {task.workload.name} ran")
    return best_sec, time.monotonic() - began


def measure(name: str, trials: int, seeds: int) -> list[str]:
    """Return a line of the table."""
    task = TuningTask(workload=FORMS[name](), target=one_core_target(), weight=1)
    sides: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for seed in range(1, seeds + 1):
        for tails, runs in sides.items():
            runs.append(search(task, tails=tails, trials=trials, seed=seed))
    (before, before_took), (after, after_took) = (
        [median(column) for column in zip(*runs, strict=True)] for runs in sides.values()
    )
    gflops = task.workload.flops / 1e9
    return [
        name,
        f"{1e6 * before:,.0f} ({gflops / before:.0f})",
        f"{1e6 * after:,.0f} ({gflops / after:.0f})",
        f"{after / before:.2f}×",
        f"{before_took:.0f} → {after_took:.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=list(FORMS), metavar="FORM")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args(arguments)
    head = ["Kernel", "Perfect tiles, µs (GFLOPS)", "With tails, µs (GFLOPS)", "Ratio", "Search, s"]
    print_table(head, (measure(name, options.trials, options.seeds) for name in options.forms))


if __name__ == "__main__":
    main()
