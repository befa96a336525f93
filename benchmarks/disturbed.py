"""Does the interval of a speed-up hold the quiet ratio while something else runs?

Times networks beside ONNX Runtime as a compile does: first alone, then many times beside a load generator, whose processes
work and sleep for random times. Writes a Markdown table.

    python -m benchmarks.disturbed --runs 20
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning.compiler.model_timing import time_models
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.latency import Latency
from tunefarm_tuning.core.ratio import Ratio, speedup
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.process import ChildLimits
from tunefarm_tuning.reference.onnx_runtime import Reference
from tunefarm_tuning.target.host import num_cores
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.workload.precision import Precision

LOADS: Mapping[str, tuple[int, float, float]] = {
    "none": (0, 0.0, 0.0),
    "bursts": (1, 0.3, 0.7),
    "one core": (1, 10.0, 0.0),
    "two processes": (2, 10.0, 0.0),
}
"""Number of processes, and the mean seconds for which each works and sleeps."""
BUSY = [name for name in LOADS if name != "none"]
QUIET_RUNS = 3

_LOAD = """
import random, sys, time
work, rest, rng = float(sys.argv[1]), float(sys.argv[2]), random.Random(int(sys.argv[3]))
while True:
    until = time.monotonic() + rng.expovariate(1 / work)
    while time.monotonic() < until:
        sum(range(1000))
    time.sleep(rng.expovariate(1 / rest) if rest else 0)
"""


@contextmanager
def load(name: str, seed: int = 0) -> Iterator[None]:
    """Run one of `LOADS` for the length of the block."""
    count, work_sec, rest_sec = LOADS[name]
    processes = [
        subprocess.Popen([sys.executable, "-c", _LOAD, str(work_sec), str(rest_sec), str(seed + number)])
        for number in range(count)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def networks() -> dict[str, onnx.ModelProto]:
    """Return five small networks of different kinds."""
    return {
        "convolutions": _convolutions(16, 56, 4, group=1),
        "wide convolutions": _convolutions(64, 28, 3, group=1),
        "depthwise": _convolutions(64, 56, 4, group=64),
        "dense layers": _dense(512, 6),
        "elementwise": _elementwise(1 << 19, 8),
    }


def _model(
    nodes: list[onnx.NodeProto], arrays: Mapping[str, np.ndarray], shape: list[int]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _convolutions(channels: int, size: int, depth: int, *, group: int) -> onnx.ModelProto:
    rng, nodes, arrays, value = np.random.default_rng(0), [], {}, "x"
    for layer in range(depth):
        shape = (channels, channels // group, 3, 3)
        arrays[f"w{layer}"] = (rng.standard_normal(shape) / np.sqrt(9 * channels / group)).astype(np.float32)
        nodes.append(helper.make_node("Conv", [value, f"w{layer}"], [f"c{layer}"], pads=[1] * 4, group=group))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [value := f"r{layer}"]))
    return _model(nodes, arrays, [1, channels, size, size])


def _dense(width: int, depth: int) -> onnx.ModelProto:
    rng, nodes, arrays, value = np.random.default_rng(0), [], {}, "x"
    for layer in range(depth):
        arrays[f"w{layer}"] = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Tanh", [f"m{layer}"], [value := f"t{layer}"]))
    return _model(nodes, arrays, [64, width])


def _elementwise(count: int, depth: int) -> onnx.ModelProto:
    nodes, value = [], "x"
    for layer in range(depth):
        kind = "Sigmoid" if layer % 2 else "Tanh"
        nodes.append(helper.make_node(kind, [value], [value := f"e{layer}"]))
    return _model(nodes, {}, [1, count])


class Contest:
    """One network, built with default schedules, and ONNX Runtime."""

    def __init__(self, network: onnx.ModelProto, folder: Path, stack: ExitStack) -> None:
        file = folder / "network.onnx"
        file.write_bytes(network.SerializeToString())
        model, threads = import_model(file), num_cores()
        self._library = folder / "network.so"
        session = CompileSession(model, parse_target("host"), folder, CompileLimits(), Precision.AS_MODEL)
        with closing(session) as compiler:
            compiler.build_model(self._library, {}, {})
        self._runner = DeviceRun(
            None, kind="cpu", threads=threads, limits=ChildLimits(memory_bytes=None), folder=folder
        )
        self._reference = Reference(model, folder, threads=threads, memory_bytes=16 << 30, timeout_sec=300.0)
        stack.enter_context(closing(self._runner))
        stack.enter_context(closing(self._reference))
        self._inputs = self._reference.make(0, thorough=False)[0].inputs
        self._threads = self._runner.connect()

    def ratio(self, timing_sec: float) -> tuple[Ratio, Latency]:
        """Return how many times as fast as ONNX Runtime the network is, and the latter's latency."""
        latency = time_models(
            self._runner,
            {"tuned": self._library},
            self._reference,
            self._inputs,
            threads=self._threads,
            limits=CompileLimits(),
            on_round=lambda _: None,
            until=time.monotonic() + timing_sec,
        )
        return speedup(latency["onnxruntime"], latency["tuned"]), latency["onnxruntime"]


def holds(ratio: Ratio, quiet: Sequence[Ratio]) -> bool:
    """Return whether an interval holds the quiet ratio, which quiet runs do not all agree on."""
    values = [each.value for each in quiet]
    return (ratio.low or 0.0) <= max(values) and min(values) <= (ratio.high or np.inf)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--timing-sec", type=float, default=2.0)
    parser.add_argument("--network", choices=list(networks()), action="append")
    args = parser.parse_args()
    print("| network | quiet | intervals that hold it | tight | widest interval | medians |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in args.network or networks():
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            contest = Contest(networks()[name], Path(folder), stack)
            quiet = [contest.ratio(args.timing_sec)[0] for _ in range(QUIET_RUNS)]
            ratios = []
            for run in range(args.runs):
                kind = BUSY[run % len(BUSY)]
                with load(kind, seed=run):
                    ratio, latency = contest.ratio(args.timing_sec)
                ratios.append(ratio)
                print(f"{name} {kind}: {ratio} {latency.disturbance}", file=sys.stderr, flush=True)
        widest = max(ratios, key=lambda ratio: (ratio.high or np.inf) / (ratio.low or 1.0))
        print(
            f"| {name} | {_range(quiet)} | {sum(holds(ratio, quiet) for ratio in ratios)} of {args.runs} "
            f"| {sum(ratio.is_tight for ratio in ratios)} | {widest.low:.2f} to {widest.high:.2f} | {_range(ratios)} |",
            flush=True,
        )


def _range(ratios: Sequence[Ratio]) -> str:
    values = [ratio.value for ratio in ratios]
    return f"{min(values):.2f} to {max(values):.2f}"


if __name__ == "__main__":
    main()
