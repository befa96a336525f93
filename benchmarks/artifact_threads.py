"""Time what an artifact's threads cost its caller, by their settings: benchmarks/results/artifact_threads.md.

    python -m benchmarks.artifact_threads --output benchmarks/results/artifact_threads.md

A network of twenty small matmuls on all cores, called back to back, alone, in turn with a second copy of it in the same process, and
beside as many busy processes as there are cores; 3 ms after the last call; and every 20 ms: the processor time of the last is what threads spend while their caller sleeps. Each row is a
process of its own, and the median of three of them. `--older` adds an artifact of the same network, compiled by another release:
`--compile FILE` compiles it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, ROWS, WIDTH = 20, 64, 256
TURNS = 3
SETTINGS: dict[str, dict[str, str]] = {
    "artifact": {},
    "artifact, spins 150 ms": {"TVM_THREAD_POOL_SPIN_COUNT": "300000"},
    "artifact, spins 5 ms": {"TVM_THREAD_POOL_SPIN_COUNT": "10000"},
    "artifact, does not spin": {"TVM_THREAD_POOL_SPIN_COUNT": "0"},
}
THEIRS = "ONNX Runtime"


def build() -> onnx.ModelProto:
    """Return the network."""
    rng = np.random.default_rng(0)
    names = ["x", *(f"h{i}" for i in range(1, LAYERS)), "y"]
    nodes, weights = [], []
    for i in range(LAYERS):
        weights.append(
            numpy_helper.from_array(rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16, f"w{i}")
        )
        nodes.append(helper.make_node("MatMul", [names[i], f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [names[i + 1]]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (ROWS, WIDTH)) for name in "xy")
    graph = helper.make_graph(nodes, "layers", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def measure(file: str, threads: int, others: int) -> dict[str, float]:
    """Return the figures of this process: seconds, and of the processor; beside so many others, the seconds back to back alone."""
    x = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    call = _loaded(file, threads, x)
    for _ in range(50):
        call()
    if others:
        from benchmarks.disturbed import processes

        with processes(others, work_sec=10.0, rest_sec=0.0):
            return {"beside": median(_seconds(call) for _ in range(200))}
    busy = [_seconds(call) for _ in range(300)]
    paused = []
    for _ in range(100):
        time.sleep(0.003)
        paused.append(_seconds(call))
    before = time.process_time()
    for _ in range(30):
        call()
        time.sleep(0.02)
    processor = (time.process_time() - before) / 30
    other = _loaded(file, threads, x)
    in_turn = [_seconds(lambda: (call(), other())) / 2 for _ in range(150)]
    return {
        "busy": median(busy),
        "in turn": median(in_turn),
        "paused": median(paused),
        "processor": processor,
    }


def _loaded(file: str, threads: int, x: np.ndarray) -> Callable[[], Any]:
    """Return a call of the network, an artifact or an ONNX file."""
    if file.endswith(".onnx"):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"x": x})
    from tunefarm_tuning.artifact.loader import load

    model = load(file, threads=threads)
    return lambda: model(x)


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def compile_to(artifact: Path) -> None:
    """Compile the network for this machine."""
    import tunefarm_tuning

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layers.onnx"
        path.write_bytes(build().SerializeToString())
        tunefarm_tuning.compile(tunefarm_tuning.import_model(path), "host", output=artifact)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--older", type=Path, help="an artifact of the network, of another release")
    parser.add_argument("--compile", type=Path, help="compile the network, and time nothing")
    parser.add_argument("--child", nargs=3, metavar=("FILE", "THREADS", "OTHERS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        warnings.simplefilter("ignore")
        file, threads, others = args.child
        print(json.dumps(measure(file, int(threads), int(others))))
        return
    if args.compile:
        compile_to(args.compile)
        return
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        artifact, network = Path(folder) / "layers.tunefarm", Path(folder) / "layers.onnx"
        compile_to(artifact)
        network.write_bytes(build().SerializeToString())
        jobs = [(f"{name}, {_threads(cores)}", artifact, cores, more) for name, more in SETTINGS.items()]
        jobs += [("artifact, 1 thread", artifact, 1, {})]
        jobs += [(f"{THEIRS}, {_threads(count)}", network, count, {}) for count in (cores, 1)]
        if args.older is not None:
            jobs += [(f"artifact of another release, {_threads(cores)}", args.older, cores, {})]
        samples: dict[str, list[dict[str, float]]] = {job[0]: [] for job in jobs}
        for _ in range(TURNS):
            for name, file, threads, more in jobs:
                figures: dict[str, float] = {}
                for others in (0, cores):
                    done = subprocess.run(
                        [sys.executable, "-m", "benchmarks.artifact_threads", "--child", str(file), str(threads), str(others)],
                        capture_output=True, text=True, check=True, env={**os.environ, **more},
                    )  # fmt: skip
                    figures |= json.loads(done.stdout)
                samples[name].append(figures)
    lines = [
        "# An artifact's threads and their caller",
        "",
        f"| | back to back (µs) | in turn with a copy (µs) | beside {cores} busy processes (µs) | 3 ms after the last (µs) | processor time per call, one each 20 ms (ms) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, runs in samples.items():
        *times, processor = (
            median(run[key] for run in runs) for key in ("busy", "in turn", "beside", "paused", "processor")
        )
        lines.append(
            f"| {name} | {' | '.join(f'{sec * 1e6:,.0f}' for sec in times)} | {processor * 1e3:.1f} |"
        )
    text = "\n".join([*lines, ""])
    print(text)
    if args.output is not None:
        args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
