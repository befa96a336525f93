"""Time a call of an artifact beside its kernels, against ONNX Runtime's: benchmarks/results/artifact_call.md.

    taskset -c 1 env OMP_NUM_THREADS=1 python benchmarks/artifact_call.py --output benchmarks/results/artifact_call.md

Networks that compute next to nothing, on one thread; all ways of calling are timed in turns, and the median of the rounds is told.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import tunefarm_tuning
from tunefarm_tuning.artifact.loader import InferenceSession, aligned_empty, extract_library, load

ROUNDS = 15
ROUND_SEC = 0.05
NETWORKS = {
    "16 numbers": (1, 16),
    "an image, 3x224x224": (1, 3, 224, 224),
    "8 images, 3x224x224": (8, 3, 224, 224),
}
OLD = "artifact, `set_input` and copies (until 2026-11)"
WAYS = (
    "ONNX Runtime, `session.run`",
    OLD,
    "artifact, `model(x)`",
    "artifact, `model(x)`, x aligned",
    "artifact, `model(name=x)`",
    "artifact, `InferenceSession.run`",
    "the kernels and TVM's virtual machine alone",
)


def build(shape: tuple[int, ...]) -> onnx.ModelProto:
    """Return a network of one Relu."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def ways_of(path: Path, artifact: Path, shape: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    """Return every way to call one network, by its name in the table."""
    import tvm
    from tvm import relax

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    model = load(artifact, threads=1)
    ours = InferenceSession(artifact, options)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    aligned = aligned_empty(shape, x.dtype)
    aligned[...] = x
    if not x.ctypes.data % 64:  # numpy's own are at any address
        x = np.frombuffer(x.tobytes(), np.float32).reshape(shape)
    extract_library(artifact, artifact.with_suffix(".so"))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(artifact.with_suffix(".so"))), tvm.cpu())
    ready, main = tvm.runtime.tensor(x), machine["main"]

    def old() -> dict[str, Any]:
        machine.set_input("main", tvm.runtime.tensor(np.ascontiguousarray(x), tvm.cpu()))
        machine.invoke_stateful("main")
        return {"y": machine.get_outputs("main").numpy()}

    for call in (lambda: model(x)["y"], lambda: ours.run(None, {"x": x})[0], lambda: old()["y"]):
        np.testing.assert_array_equal(call(), theirs.run(None, {"x": x})[0])
    calls = (
        lambda: theirs.run(None, {"x": x}),
        old,
        lambda: model(x),
        lambda: model(aligned),
        lambda: model(x=x),
        lambda: ours.run(None, {"x": x}),
        lambda: main(ready),
    )
    return dict(zip(WAYS, calls, strict=True))


def time_in_turns(ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the seconds of a call of each way."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    numbers: dict[str, int] = {}
    for name, call in ways.items():
        started, number = time.perf_counter(), 0
        while time.perf_counter() - started < ROUND_SEC:
            call()
            number += 1
        numbers[name] = max(1, number)
    for _ in range(ROUNDS):
        for name, call in ways.items():
            started = time.perf_counter()
            for _ in range(numbers[name]):
                call()
            samples[name].append((time.perf_counter() - started) / numbers[name])
    return {name: median(seconds) for name, seconds in samples.items()}


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    columns: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, shape in NETWORKS.items():
            path = Path(folder) / f"relu{len(columns)}.onnx"
            path.write_bytes(build(shape).SerializeToString())
            compiled = tunefarm_tuning.compile(
                tunefarm_tuning.import_model(path), "host", output=path.with_suffix("")
            )
            columns[label] = time_in_turns(ways_of(path, compiled.path, shape))
    rows = [
        f"| {way} | " + " | ".join(f"{columns[label][way] * 1e6:,.1f}" for label in columns) + " |"
        for way in WAYS
    ]
    text = "\n".join(
        [
            "# A call of an artifact",
            "",
            "Microseconds per call of a network of one Relu, on one thread: `benchmarks/artifact_call.py`.",
            "",
            f"| | {' | '.join(columns)} |",
            f"|---|{'---|' * len(columns)}",
            *rows,
            "",
        ]
    )
    print(text)
    if args.output is not None:
        args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
