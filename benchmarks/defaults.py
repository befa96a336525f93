"""Time untuned kernels and networks: with default schedules, as TVM's unscheduled loops, and with ONNX Runtime.

    taskset -c 1 env TVM_NUM_THREADS=1 python -m benchmarks.defaults --networks resnet18 encoder4 > table.md

One thread. Of each network the whole, then every kernel by itself: GFLOP/s, or GB/s of its arguments where it does hardly any
arithmetic. Unscheduled loops are run once or twice, all else until 20 ms are over, five times; medians.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import onnxruntime
import tvm
from benchmarks.models.networks import network_file
from tvm import relax

from tunefarm_tuning import import_model
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel, build_model
from tunefarm_tuning.tvm.default_schedules.schedule import NoDefaultSchedule, default_schedule
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel
from tunefarm_tuning.tvm.tasks.extract import Kernel, kernel_args, kernel_flops, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax

NETWORKS = ("resnet18", "mobilenet_v2", "encoder4", "squeezenet", "densenet121")
_TARGET = parse_target("host")
_LEAST_SEC = 0.02
_FLOPS_PER_BYTE = 1.0


def time_calls(call: Callable[[], Any], *, repeat: int = 5) -> float:
    """Return the seconds of a call: a median, or of few calls where one takes long."""
    call()
    started = time.perf_counter()
    call()
    once = time.perf_counter() - started
    if once > 1.0:
        return once
    number = max(1, round(_LEAST_SEC / max(once, 1e-7)))
    samples = []
    for _ in range(repeat):
        started = time.perf_counter()
        for _ in range(number):
            call()
        samples.append((time.perf_counter() - started) / number)
    return median(samples)


def time_network(loaded: RelaxNetwork, folder: Path, *, default_schedules: bool) -> float:
    path = Path(tempfile.mkdtemp(dir=folder)) / "network.so"  # a path is loaded once per process
    build_model(loaded.module, _TARGET, path, default_schedules=default_schedules)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    arrays = random_inputs(loaded.inputs, seed=0, kind=InputKind.NORMAL)
    machine.set_input("main", *[tvm.runtime.tensor(array) for array in arrays])
    return time_calls(lambda: machine.invoke_stateful("main"))


def time_onnxruntime(path: Path, loaded: RelaxNetwork) -> float:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    arrays = random_inputs(loaded.inputs, seed=0, kind=InputKind.NORMAL)
    feed = {spec.name: array for spec, array in zip(loaded.inputs, arrays, strict=True)}
    return time_calls(lambda: session.run(None, feed))


def time_kernel(kernel: Kernel, folder: Path, *, default_schedules: bool) -> float:
    path = Path(tempfile.mkdtemp(dir=folder)) / "kernel.so"
    build_kernel(PackedKernel(func=kernel.module["main"]), _TARGET, path, default_schedules=default_schedules)
    arrays = random_inputs(kernel_args(kernel.module), seed=0, kind=InputKind.NORMAL)
    args = [tvm.runtime.tensor(array) for array in arrays]
    main = tvm.runtime.load_module(str(path))["main"]
    return time_calls(lambda: main(*args))


def kernel_rows(loaded: RelaxNetwork, folder: Path) -> Iterator[str]:
    """Yield a line of the table for each workload of a network."""
    seen: set[str] = set()
    for kernel in primfunc_workloads(loaded.module):
        if kernel.not_tunable is not None or kernel.workload_key in seen:
            continue
        seen.add(kernel.workload_key)
        started = time.perf_counter()
        try:
            default_schedule(kernel.module["main"], _TARGET)
        except NoDefaultSchedule:
            yield f"| {kernel.name[:60]} | {kernel.weight} | – | – | none | – | – |"
            continue
        made_sec = time.perf_counter() - started
        default_sec, plain_sec = (
            time_kernel(kernel, folder, default_schedules=by_rule) for by_rule in (True, False)
        )
        size = sum(array.nbytes for array in random_inputs(kernel_args(kernel.module), seed=0))
        flops = kernel_flops(kernel.module)
        work, unit = (flops, "GFLOP/s") if flops > _FLOPS_PER_BYTE * size else (size, "GB/s")
        yield (
            f"| {kernel.name[:60]} | {kernel.weight} | {made_sec * 1e3:.0f} | {plain_sec * 1e6:,.0f} | "
            f"{default_sec * 1e6:,.1f} | {work / default_sec / 1e9:.1f} {unit} | {plain_sec / default_sec:.1f} |"
        )


def report(name: str, folder: Path) -> Iterator[str]:
    """Yield the lines of a network: of the whole, and of its kernels."""
    path = network_file(name, folder)
    model = import_model(path)
    loaded = load_relax(path, model.binding, _TARGET)
    default_sec = time_network(loaded, folder, default_schedules=True)
    theirs_sec = time_onnxruntime(path, loaded)
    plain_sec = time_network(loaded, folder, default_schedules=False)
    yield f"\n## {path.stem}\n"
    yield (
        f"Default schedules {default_sec * 1e3:.2f} ms, unscheduled loops {plain_sec * 1e3:,.0f} ms, ONNX Runtime "
        f"{theirs_sec * 1e3:.2f} ms: {default_sec / theirs_sec:.2f}× ONNX Runtime's time.\n"
    )
    yield "| Kernel | Calls | Rules, ms | Plain, µs | Default, µs | Default | Plain / default |"
    yield "|---|---|---|---|---|---|---|"
    yield from kernel_rows(loaded, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help="names, or ONNX files")
    chosen = parser.parse_args(arguments).networks
    print("# Default schedules\n\nMade by `python -m benchmarks.defaults`, which says how; one thread.")
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder:
        for name in chosen:
            for line in report(name, Path(folder)):
                print(line, flush=True)


if __name__ == "__main__":
    main()
