"""One artifact for several shapes against one artifact per shape, and against ONNX Runtime with open dimensions.

Usage::

    python -m benchmarks.shapes encoder --shape 'x=1..8,16|64|128|256,256@1,8' --trials 160 --alone 3
    python -m benchmarks.shapes recogniser.onnx --shape 'x=1,3,48,160|320|640' --trials 200

First the network is tuned in the first `--alone` of its shapes, each by itself, for `--trials`. Then the joint artifact is tuned for
1.4 times the seconds of the first of these; a round that is at work when they are over is finished. Prints a Markdown table; times are medians, taken in turns, and the ratio to the artifact
of one shape is the median of the turns' ratios. `--other` times the code for other shapes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime
from benchmarks.models.networks.encoder import build_encoder
from numpy.typing import NDArray
from onnx import numpy_helper

import tunefarm_tuning
from tunefarm_text.shape_text import split_name
from tunefarm_tuning import Artifact, Budget, History, extract_tasks, import_model, tune
from tunefarm_tuning.artifact.loader import TunedModel, load
from tunefarm_tuning.core.latency import wait_until_idle
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.shapes import fixed_shapes

_ROUNDS = 11
_JOINT_SHARE = 1.4
"""Seconds that the joint search is given, as a share of those of the main shape alone."""


def open_encoder(path: Path) -> Path:
    """Write an encoder of four layers whose batch and length are open."""
    model = build_encoder(layers=4, hidden=256, heads=4, feed_forward=1024)
    for tensor in model.graph.initializer:
        if tensor.name in ("split", "joined"):  # a 0 of a Reshape keeps the input's size
            sizes = numpy_helper.to_array(tensor)
            kept = np.array([0, 0, *sizes[2:]], np.int64)
            tensor.CopyFrom(numpy_helper.from_array(kept, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in enumerate(("batch", "length")):
            value.type.tensor_type.shape.dim[axis].dim_param = name
    del model.graph.value_info[:]
    onnx.save(model, path)
    return path


def tuned_artifact(model: Model, budget: Budget, path: Path) -> tuple[Artifact, float]:
    """Tune and compile a model; return the artifact and the seconds that its tasks' extraction and their search took."""
    began = time.monotonic()
    tasks = extract_tasks(model)
    if budget.wall_sec is not None:
        budget = replace(budget, wall_sec=budget.wall_sec - (time.monotonic() - began))
    result = tune(tasks, budget=budget)
    searched_sec = time.monotonic() - began
    artifact = tunefarm_tuning.compile(model, output=path, history=History(result.records), baseline=False)
    return artifact, searched_sec


def in_turns(
    joint: TunedModel, alone: TunedModel | None, session: Any, feeds: dict[str, NDArray[Any]]
) -> dict[str, float]:
    """Return median seconds per call of each runtime, sampled in turns; ``ratio`` is the median of joint / alone over the turns."""
    timers = {"joint": partial(joint.time, repeat=1, inputs=feeds)}
    if alone is not None:
        timers["alone"] = partial(alone.time, repeat=1, inputs=feeds)
    samples: dict[str, list[float]] = {name: [] for name in (*timers, "onnxruntime")}
    for _ in range(_ROUNDS):
        for name, timer in timers.items():
            wait_until_idle()  # ONNX Runtime's threads wait busily for a while
            samples[name] += timer()
        wait_until_idle()
        session.run(None, feeds)
        began, calls = time.perf_counter(), 0
        while time.perf_counter() - began < 0.05:
            session.run(None, feeds)
            calls += 1
        samples["onnxruntime"].append((time.perf_counter() - began) / calls)
    medians = {name: median(values) for name, values in samples.items()}
    if alone is not None:
        pairs = zip(samples["joint"], samples["alone"], strict=True)
        medians["ratio"] = median(ours / its for ours, its in pairs)
    return medians


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", help="encoder, or an ONNX file")
    parser.add_argument("--shape", action="append", required=True)
    parser.add_argument("--trials", type=int, default=200, help="for each shape by itself")
    parser.add_argument(
        "--alone", type=int, default=2, help="shapes to tune by themselves, one at least, the main one first"
    )
    parser.add_argument("--other", action="append", default=[], help="a shape that is not tuned: x=3,100,256")
    parser.add_argument("--folder", type=Path, default=Path("shapes-benchmark"))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    path = open_encoder(args.folder / "encoder.onnx") if args.network == "encoder" else Path(args.network)
    model = import_model(path, shapes=dict(map(split_name, args.shape)))
    singles = [
        tuned_artifact(each, Budget(trials=args.trials), args.folder / f"alone-{number}")
        for number, each in enumerate(model.each[: max(1, args.alone)])
    ]
    print("search alone, s:", *(f"{searched_sec:.0f}" for _, searched_sec in singles), flush=True)
    budget = Budget(wall_sec=_JOINT_SHARE * singles[0][1])
    artifact, joint_sec = tuned_artifact(model, budget, args.folder / "joint")
    joint = load(artifact.path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = joint.threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    print(
        f"joint: {len(model.each)} sets of shapes, {artifact.path.stat().st_size / 1e6:.1f} MB, search {joint_sec:.0f} s\n",
        flush=True,
    )
    print(
        "| inputs | joint, ms | alone, ms | joint / alone | ONNX Runtime, ms | ONNX Runtime / joint | alone, MB | search alone, s |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for number, each in enumerate(model.each):
        alone, alone_sec, size = None, None, None
        if number < len(singles):
            single, alone_sec = singles[number]
            alone, size = load(single.path), single.path.stat().st_size / 1e6
        feeds = drawn({spec.name: spec.shape for spec in each.inputs}, model, seed=number)
        sec = in_turns(joint, alone, session, feeds)
        own = f"{sec['alone'] * 1e3:.3f}" if alone else "–"
        ratio = f"{sec['ratio']:.2f}" if alone else "–"
        print(
            f"| {_shapes(feeds)} | {sec['joint'] * 1e3:.3f} | {own} | {ratio} | {sec['onnxruntime'] * 1e3:.3f} "
            f"| {sec['onnxruntime'] / sec['joint']:.2f} | {f'{size:.1f}' if size else '–'} "
            f"| {f'{alone_sec:.0f}' if alone_sec else '–'} |",
            flush=True,
        )
    if args.other:
        print(
            "\n| inputs of another shape | joint, ms | ONNX Runtime, ms | joint / ONNX Runtime |\n|---|---|---|---|"
        )
    for number, text in enumerate(args.other):
        feeds = drawn(fixed_shapes(dict([split_name(text)])), model, seed=number)
        sec = in_turns(joint, None, session, feeds)
        print(
            f"| {_shapes(feeds)} | {sec['joint'] * 1e3:.3f} | {sec['onnxruntime'] * 1e3:.3f} "
            f"| {sec['joint'] / sec['onnxruntime']:.2f} |",
            flush=True,
        )


def drawn(shapes: Mapping[str, Sequence[int]], model: Model, *, seed: int) -> dict[str, NDArray[Any]]:
    """Return normal inputs of given shapes, by name."""
    rng = np.random.default_rng(seed)
    dtypes = {spec.name: spec.dtype for spec in model.inputs}
    return {name: rng.standard_normal(shape).astype(dtypes[name]) for name, shape in shapes.items()}


def _shapes(feeds: Mapping[str, NDArray[Any]]) -> str:
    return ", ".join("x".join(map(str, array.shape)) for array in feeds.values())


if __name__ == "__main__":
    main()
