"""Does the interval of a speed-up hold the quiet ratio while something else runs?

Times networks beside ONNX Runtime as a compile does: many times beside a load generator, and in between alone. Its processes
work and sleep for random times. Each run is a line of the output; runs that are there are not made again, so that it can go on
in pieces. When all are there, it prints a Markdown table.

    python -m benchmarks.disturbed --output out/disturbed.jsonl --seconds 50

With `--blocks FILE` each block of each run is kept as well; `--replay FILE` prints how the intervals of such blocks are now, beside
those that the blocks' means tell. What they are to hold is the ratio of the fastest inferences of all runs there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from benchmarks.search import json_lines
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning.compiler.model_timing import SideBySide, time_models
from tunefarm_tuning.compiler.session import CompileLimits, CompileSession
from tunefarm_tuning.core.latency import Latency, is_quiet
from tunefarm_tuning.core.ratio import Ratio, speedup
from tunefarm_tuning.frontend.importing import import_model
from tunefarm_tuning.measure.device_run import DeviceRun
from tunefarm_tuning.measure.machine_watch import Watched
from tunefarm_tuning.measure.timing_blocks import Block, Sample, latencies_of
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
QUIET_EVERY = 5
_NETWORKS = ("tuned", "onnxruntime")
_TIME_IS_UP = 75

_LOAD = """
import os, random, sys, time
work, rest, rng, parent = float(sys.argv[1]), float(sys.argv[2]), random.Random(int(sys.argv[3])), int(sys.argv[4])
while os.getppid() == parent:
    until = time.monotonic() + rng.expovariate(1 / work)
    while time.monotonic() < until and os.getppid() == parent:
        sum(range(1000))
    time.sleep(rng.expovariate(1 / rest) if rest else 0)
"""


@contextmanager
def load(name: str, seed: int = 0) -> Iterator[None]:
    """Run one of `LOADS` for the length of the block."""
    with processes(*LOADS[name], seed=seed):
        yield


@contextmanager
def processes(count: int, work_sec: float, rest_sec: float, *, seed: int = 0) -> Iterator[None]:
    """Run processes for the length of the block, each of which works and sleeps for these mean times."""
    arguments = [
        (str(work_sec), str(rest_sec), str(seed + number), str(os.getpid())) for number in range(count)
    ]
    running = [subprocess.Popen([sys.executable, "-c", _LOAD, *more]) for more in arguments]
    try:
        yield
    finally:
        for process in running:
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

    def ratio(self, timing_sec: float, blocks: list[Block]) -> tuple[Ratio, Latency]:
        """Return how many times as fast as ONNX Runtime the network is, and the latter's latency; append the blocks."""
        networks = SideBySide(
            device=self._runner,
            libraries={"tuned": self._library},
            reference=self._reference,
            inputs=self._inputs,
            threads=self._threads,
        )
        latency = time_models(
            networks,
            limits=CompileLimits(),
            on_round=lambda _: None,
            until=time.monotonic() + timing_sec,
            blocks=blocks,
        )
        return speedup(latency["onnxruntime"], latency["tuned"]), latency["onnxruntime"]


def schedule(runs: int) -> list[str]:
    """Return the load of each run of a network: a quiet run before every few busy ones, and one at the end."""
    loads: list[str] = []
    for run in range(runs):
        if run % QUIET_EVERY == 0:
            loads.append("none")
        loads.append(BUSY[run % len(BUSY)])
    return [*loads, "none"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs that are missing; 0 if none is missing any more, 75 if some are: time was up, or a quiet run was disturbed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--output", type=Path, default=Path("out/disturbed.jsonl"))
    parser.add_argument("--runs", type=int, default=20, help="beside a load, of each network")
    parser.add_argument("--timing-sec", type=float, default=2.0)
    parser.add_argument("--network", choices=list(networks()), action="append")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so long")
    parser.add_argument("--blocks", type=Path, help="a file of JSON lines for the blocks of each run")
    parser.add_argument(
        "--replay", type=Path, help="print the intervals of blocks that were kept, and time nothing"
    )
    options = parser.parse_args(arguments)
    if options.replay is not None:
        print(render_replay(json_lines.load(options.replay)))
        return 0
    until = time.monotonic() + options.seconds
    names = options.network or list(networks())
    for name in names:
        missing = _missing(options.output, name, options.runs)
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            contest = Contest(networks()[name], Path(folder), stack)
            for number, kind in missing:
                if time.monotonic() >= until:
                    return _TIME_IS_UP
                blocks: list[Block] = []
                with load(kind, seed=number):
                    ratio, latency = contest.ratio(options.timing_sec, blocks)
                disturbance = None if latency.disturbance is None else latency.disturbance.to_json()
                line = {"network": name, "run": number, "load": kind, **ratio.to_json()}
                line["is_quiet"] = is_quiet([latency])
                json_lines.append(options.output, {**line, "disturbance": disturbance})
                if options.blocks is not None:
                    json_lines.append(
                        options.blocks, {**line, "blocks": [_block_json(block) for block in blocks]}
                    )
                print(f"{name} {number} {kind}: {ratio}", file=sys.stderr, flush=True)
    print(render(json_lines.load(options.output)))
    return _TIME_IS_UP if any(_missing(options.output, name, options.runs) for name in names) else 0


def _block_json(block: Block) -> dict[str, Any]:
    samples = {
        name: [
            sample.sec,
            sample.inferences,
            None if sample.watched is None else sample.watched.to_json(),
            sample.fast_sec,
        ]
        for name, sample in block.samples.items()
    }
    return {"loop_sec": block.loop_sec, "samples": samples}


def _missing(output: Path, name: str, runs: int) -> list[tuple[int, str]]:
    """Return the runs of a network that do not count yet: their numbers, and the loads beside them."""
    finished = {line["run"] for line in _counting(json_lines.load(output)) if line["network"] == name}
    return [run for run in enumerate(schedule(runs)) if run[0] not in finished]


def render(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of runs: of each network, how many intervals hold what its quiet runs gave."""
    rows = [
        "| network | quiet runs | their median | intervals that hold it | that meet them | tight | widest interval | beside a load |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines = _counting(lines)
    for name in dict.fromkeys(line["network"] for line in lines):
        runs = [(line["load"], Ratio.from_json(line)) for line in lines if line["network"] == name]
        quiet = [ratio for kind, ratio in runs if kind == "none"]
        busy = [ratio for kind, ratio in runs if kind != "none"]
        if not quiet or not busy:
            rows.append(f"| {name} | no quiet run yet, {len(busy)} beside a load |" + " – |" * 6)
            continue
        truth = median(ratio.value for ratio in quiet)
        held = sum(holds(ratio, truth, truth) for ratio in busy)
        met = sum(holds(ratio, *_extremes(quiet)) for ratio in busy)
        widest = max(busy, key=lambda ratio: (ratio.high or inf) / (ratio.low or 1.0))
        rows.append(
            f"| {name} | {_range(quiet)} | {truth:.2f} | {held} of {len(busy)} | {met} of {len(busy)} "
            f"| {sum(ratio.is_tight for ratio in busy)} | {widest.low or 0.0:.2f} to {widest.high or inf:.2f} | {_range(busy)} |"
        )
    return "\n".join(rows)


def render_replay(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of kept blocks: the intervals by means alone, and those that count the fastest inferences."""
    rows = [
        "| network | an inference | ratio of the fastest | runs | hold it by means | median width | hold it now | median width | widest |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in dict.fromkeys(line["network"] for line in lines):
        runs = [line["blocks"] for line in lines if line["network"] == name]
        tuned, runtime = (_fastest_sec(runs, each) for each in _NETWORKS)
        cells = []
        for by_means in (True, False):
            ratios = [_replayed(blocks, by_means=by_means) for blocks in runs]
            widths = [(ratio.high or inf) / (ratio.low or 1e-9) for ratio in ratios]
            held = sum(holds(ratio, runtime / tuned, runtime / tuned) for ratio in ratios)
            cells.append(f"{held} | {median(widths):.1f}×")
        rows.append(
            f"| {name} | {1e3 * tuned:.2f} ms | {runtime / tuned:.2f} | {len(runs)} | {' | '.join(cells)} | {max(widths):.1f}× |"
        )
    return "\n".join(rows)


def _fastest_sec(runs: Sequence[Sequence[Mapping[str, Any]]], network: str) -> float:
    seconds = sorted(
        block["samples"][network][3]
        for blocks in runs
        for block in blocks
        if network in block["samples"] and block["samples"][network][3] is not None
    )
    return float(np.mean(seconds[2:10] or seconds))


def _replayed(blocks: Sequence[Mapping[str, Any]], *, by_means: bool) -> Ratio:
    read = [
        Block(
            {
                name: Sample(
                    sec,
                    inferences,
                    None if watched is None else Watched.from_json(watched),
                    None if by_means else fast_sec,
                )
                for name, (sec, inferences, watched, fast_sec) in block["samples"].items()
            },
            block["loop_sec"],
        )
        for block in blocks
    ]
    latency = latencies_of(read, _NETWORKS, num_cores())
    return speedup(latency["onnxruntime"], latency["tuned"])


def _counting(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the runs that count: a quiet one only if nothing else ran beside it, or it tells no truth and is made again."""
    return [line for line in lines if line["load"] != "none" or line["is_quiet"]]


def holds(ratio: Ratio, least: float, most: float) -> bool:
    """Return whether an interval meets the range between two ratios; a ratio without one is its own."""
    low = ratio.value if ratio.low is None else ratio.low
    high = ratio.value if ratio.high is None else ratio.high
    return low <= most and least <= high


def _extremes(ratios: Sequence[Ratio]) -> tuple[float, float]:
    values = [ratio.value for ratio in ratios]
    return min(values), max(values)


def _range(ratios: Sequence[Ratio]) -> str:
    least, most = _extremes(ratios)
    return f"{least:.2f} to {most:.2f}"


if __name__ == "__main__":
    sys.exit(main())
