"""Time what TVM's thread pool costs its caller, by its settings: benchmarks/results/artifact_threads.md.

    python benchmarks/artifact_threads.py --output benchmarks/results/artifact_threads.md

A network of twenty small matmuls on all cores, called back to back, 3 ms after the last call, and every 20 ms; the processor time
of the last is what the pool spends while its caller sleeps. Each row is a process of its own, and the median of three of them.
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
SETTINGS = {
    "TVM's own (asks for 300,000 turns, bound to cores)": {"TVM_BIND_THREADS": "1", "TVM_THREAD_POOL_SPIN_COUNT": "300000"},
    "300,000 turns, not bound": {"TVM_BIND_THREADS": "0", "TVM_THREAD_POOL_SPIN_COUNT": "300000"},
    "10,000 turns, not bound (an artifact's)": {},
    "2,000 turns, not bound": {"TVM_THREAD_POOL_SPIN_COUNT": "2000"},
    "0 turns, not bound": {"TVM_THREAD_POOL_SPIN_COUNT": "0"},
}  # fmt: skip
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


def measure(file: str, threads: int) -> dict[str, float]:
    """Return the figures of this process: seconds, and of the processor."""
    x = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    call: Callable[[], Any]
    if file.endswith(".onnx"):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        call = lambda: session.run(None, {"x": x})  # noqa: E731
    else:
        from tunefarm_tuning.artifact.loader import load

        model = load(file, threads=threads)
        call = lambda: model(x)  # noqa: E731
    for _ in range(50):
        call()
    busy = [_seconds(call) for _ in range(300)]
    paused = []
    for _ in range(100):
        time.sleep(0.003)
        paused.append(_seconds(call))
    before = time.process_time()
    for _ in range(30):
        call()
        time.sleep(0.02)
    return {"busy": median(busy), "paused": median(paused), "processor": (time.process_time() - before) / 30}


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", nargs=2, metavar=("FILE", "THREADS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(args.child[0], int(args.child[1]))))
        return
    import tunefarm_tuning

    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layers.onnx"
        path.write_bytes(build().SerializeToString())
        compiled = tunefarm_tuning.compile(
            tunefarm_tuning.import_model(path), "host", output=path.with_suffix("")
        )
        jobs = [
            (f"{name}, {cores} threads", str(compiled.path), cores, more) for name, more in SETTINGS.items()
        ]
        jobs += [("artifact, 1 thread", str(compiled.path), 1, {})]
        jobs += [
            (f"{THEIRS}, {count} thread{'s' * (count > 1)}", str(path), count, {}) for count in (cores, 1)
        ]
        samples: dict[str, list[dict[str, float]]] = {job[0]: [] for job in jobs}
        for _ in range(TURNS):
            for name, file, threads, more in jobs:
                done = subprocess.run(
                    [sys.executable, __file__, "--child", file, str(threads)],
                    capture_output=True, text=True, check=True, env={**os.environ, **more},
                )  # fmt: skip
                samples[name].append(json.loads(done.stdout))
    lines = [
        "# The thread pool and its caller",
        "",
        "| | back to back (µs) | 3 ms after the last (µs) | processor time per call, one each 20 ms (ms) |",
        "|---|---:|---:|---:|",
    ]
    for name, runs in samples.items():
        busy, paused, processor = (
            median(run[key] for run in runs) for key in ("busy", "paused", "processor")
        )
        lines.append(f"| {name} | {busy * 1e6:,.0f} | {paused * 1e6:,.0f} | {processor * 1e3:.1f} |")
    text = "\n".join([*lines, ""])
    print(text)
    if args.output is not None:
        args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
