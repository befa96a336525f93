"""Time parallel products and convolutions fused into one kernel, beside the same network with a kernel for each.

    taskset -c 1 env TVM_NUM_THREADS=1 python -m benchmarks.combined --trials 32 > table.md

Each form is a small network that has what reads the branches, too: attention heads, further convolutions, a concatenation. All kernels
of both networks that compute are tuned, so many trials each; then the networks are timed in turns, medians.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import tvm
from benchmarks.models.networks.graph import Graph
from benchmarks.search.machine import cores_target
from benchmarks.search.markdown import print_table
from onnx import numpy_helper
from tvm import relax

from tunefarm_tuning import Budget, LocalBuilder, LocalRunner, import_model, tune
from tunefarm_tuning.measure.interfaces import MeasureOption
from tunefarm_tuning.records.record import TuningRecord
from tunefarm_tuning.records.selection import pick_best
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.graph_build import build_model, put_in
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, split_off_packing
from tunefarm_tuning.tvm.tasks.apply_record import apply_recorded
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads, tasks_of
from tunefarm_tuning.tvm.transform.horizontal_fusion.selection import select_faster, select_none
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax

_ROUNDS = 40
_LEAST_SEC = 0.004


class Form:
    """A network in the making."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.graph = Graph(0)
        self._shape = tuple(shape)
        self._outputs: dict[str, tuple[int, ...]] = {}

    @classmethod
    def image(cls, size: int, channels: int) -> Form:
        """Return a form with a small convolution first: the fused layers read channels last, as within a network."""
        form = cls((1, 4, size, size))
        form.conv(4, channels, "stem")
        return form

    def dense(self, inner: int, outer: int, name: str, x: str = "x") -> str:
        graph = self.graph
        weight = graph.weight(f"{name}.w", graph.rng.normal(0.0, inner**-0.5, (inner, outer)))
        bias = graph.weight(f"{name}.b", graph.rng.normal(0.0, 0.1, outer))
        return graph.node("Add", [graph.node("MatMul", [x, weight], f"{name}.mm"), bias], name)

    def conv(
        self, inner: int, outer: int, name: str, x: str = "", *, kernel: int = 1, act: str = "Relu"
    ) -> str:
        graph = self.graph
        sizes = (outer, inner, kernel, kernel)
        weight = graph.weight(f"{name}.w", graph.rng.normal(0.0, (2.0 / inner / kernel**2) ** 0.5, sizes))
        bias = graph.weight(f"{name}.b", graph.rng.normal(0.0, 0.1, outer))
        conv = graph.node(
            "Conv",
            [x or ("x" if name == "stem" else "stem"), weight, bias],
            f"{name}.conv",
            pads=[kernel // 2] * 4,
        )
        if act == "SiLU":
            return graph.node("Mul", [conv, graph.node("Sigmoid", [conv], f"{name}.sigmoid")], name)
        return graph.node(act, [conv], name) if act else conv

    def ints(self, values: Sequence[int], name: str) -> str:
        self.graph.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def heads(self, x: str, shape: Sequence[int], order: Sequence[int]) -> str:
        split = self.graph.node("Reshape", [x, self.ints(shape, f"{x}.shape")], f"{x}.split")
        return self.graph.node("Transpose", [split], f"{x}.heads", perm=list(order))

    def output(self, name: str, shape: Sequence[int]) -> None:
        self._outputs[name] = tuple(shape)

    def model(self) -> onnx.ModelProto:
        return self.graph.finish("form", {"x": self._shape}, self._outputs)


def attention(length: int, hidden: int, key_hidden: int | None = None, *, size: int = 64) -> onnx.ModelProto:
    """The projections of an attention, cut into heads."""
    form = Form((1, length, hidden))
    for name, width, order in (
        ("q", hidden, (0, 2, 1, 3)),
        ("k", key_hidden or hidden, (0, 2, 3, 1)),
        ("v", key_hidden or hidden, (0, 2, 1, 3)),
    ):
        shape = (1, length, width // size, size)
        heads = form.heads(form.dense(hidden, width, name), shape, order)
        form.output(heads, [shape[axis] for axis in order])
    return form.model()


def gated(length: int, hidden: int, wide: int) -> onnx.ModelProto:
    """Return the first half of a gated feed-forward layer: the fused result is split again for the gate."""
    form = Form((1, length, hidden))
    gate, up = form.dense(hidden, wide, "gate"), form.dense(hidden, wide, "up")
    node = form.graph.node
    open_ = node("Mul", [gate, node("Sigmoid", [gate], "sigmoid")], "open")
    form.output(node("Mul", [open_, up], "gated"), (1, length, wide))
    return form.model()


def outputs(length: int, hidden: int, widths: Sequence[int]) -> onnx.ModelProto:
    """Dense layers whose results are the network's outputs."""
    form = Form((1, length, hidden))
    for number, width in enumerate(widths):
        form.output(form.dense(hidden, width, f"y{number}"), (1, length, width))
    return form.model()


def inception(size: int, inner: int, widths: Sequence[int]) -> onnx.ModelProto:
    """An Inception block without its pool: 1x1 to the result, 1x1 to 3x3, 1x1 to 5x5."""
    first, reduce3, wide3, reduce5, wide5 = widths
    form = Form.image(size, inner)
    branches = [
        form.conv(inner, first, "a"),
        form.conv(reduce3, wide3, "b3", form.conv(inner, reduce3, "b1"), kernel=3),
        form.conv(reduce5, wide5, "c5", form.conv(inner, reduce5, "c1"), kernel=5),
    ]
    width = first + wide3 + wide5
    form.output(form.graph.node("Concat", branches, "y", axis=1), (1, width, size, size))
    return form.model()


def concatenated(size: int, inner: int, widths: Sequence[int]) -> onnx.ModelProto:
    """Return 1x1 convolutions whose results are concatenated with each other."""
    form = Form.image(size, inner)
    for number, width in enumerate(widths):
        branch = form.conv(inner, width, f"c{number}")
        form.output(
            form.graph.node("Concat", [branch, "stem"], f"y{number}", axis=1), (1, width + inner, size, size)
        )
    return form.model()


def shortcut(size: int, inner: int, outer: int) -> onnx.ModelProto:
    """A bottleneck with a projected shortcut of stride 1."""
    form = Form.image(size, inner)
    y = form.conv(inner, inner, "c3", form.conv(inner, inner, "c1"), kernel=3)
    y = form.conv(inner, outer, "c4", y, act="")
    total = form.graph.node("Add", [y, form.conv(inner, outer, "shortcut", act="")], "sum")
    form.output(form.graph.node("Relu", [total], "y"), (1, outer, size, size))
    return form.model()


def partial(size: int, inner: int, outer: int) -> onnx.ModelProto:
    """Return a cross-stage partial block: two 1x1 convolutions with SiLU, one of them followed by a 3x3."""
    form = Form.image(size, inner)
    a = form.conv(outer, outer, "a3", form.conv(inner, outer, "a1", act="SiLU"), kernel=3, act="SiLU")
    both = form.graph.node("Concat", [a, form.conv(inner, outer, "b1", act="SiLU")], "both", axis=1)
    form.output(form.conv(2 * outer, inner, "y", both, act="SiLU"), (1, inner, size, size))
    return form.model()


def detector(size: int, inner: int, anchors: int, classes: int) -> onnx.ModelProto:
    """The last 3x3 convolutions of a detector: scores and boxes, channels put last."""
    form = Form.image(size, inner)
    for name, width in (("scores", anchors * classes), ("boxes", anchors * 4)):
        scores = form.conv(inner, width, name, kernel=3, act="")
        form.output(
            form.graph.node("Transpose", [scores], f"{name}.last", perm=[0, 2, 3, 1]), (1, size, size, width)
        )
    return form.model()


FORMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "Q, K, V, 128 x 256": lambda: attention(128, 256),
    "Q, K, V, 128 x 384": lambda: attention(128, 384),
    "Q, K, V, 128 x 768": lambda: attention(128, 768),
    "Q, K, V, 16 x 512": lambda: attention(16, 512),
    "Q, K, V, 1 x 768": lambda: attention(1, 768),
    "grouped queries, 128 x 768, 256": lambda: attention(128, 768, 256),
    "gate and up, 128 x 256 to 688": lambda: gated(128, 256, 688),
    "outputs, 1 x 512 to 10 and 100": lambda: outputs(1, 512, (10, 100)),
    "outputs, 64 x 512 to 4 x 64": lambda: outputs(64, 512, (64, 64, 64, 64)),
    "Inception, 28² x 192": lambda: inception(28, 192, (64, 96, 128, 16, 32)),
    "Inception, 14² x 512": lambda: inception(14, 512, (160, 112, 224, 24, 64)),
    "to concatenations, 14² x 128 to 32 and 64": lambda: concatenated(14, 128, (32, 64)),
    "shortcut, 56² x 64 to 256": lambda: shortcut(56, 64, 256),
    "cross-stage partial, 40² x 128": lambda: partial(40, 128, 64),
    "detector, 14² x 256": lambda: detector(14, 256, 9, 4),
}


def always(_block: Any, roots: Sequence[Any]) -> list[Any]:
    return list(roots)


def build(
    loaded: RelaxNetwork, target: Target, records: Sequence[TuningRecord], folder: Path
) -> Callable[[], Any]:
    """Return a call of the network built with the best of the records."""
    best = {record.workload_key: record for record in pick_best(records)}
    kernels: dict[str, PackedKernel] = {}
    for kernel in primfunc_workloads(loaded.module):
        record = best.get(kernel.workload_key)
        if record is not None and kernel.not_tunable is None:
            schedule = apply_recorded(kernel.module, target, record.config, record.space_key)
            kernels[kernel.name] = split_off_packing(schedule.mod)
    path = Path(tempfile.mkdtemp(dir=folder)) / "network.so"  # a path is loaded once per process
    build_model(put_in(loaded.module, kernels), target, path)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    machine.set_input(
        "main",
        *(tvm.runtime.tensor(array) for array in random_inputs(loaded.inputs, seed=0, kind=InputKind.NORMAL)),
    )
    return lambda: machine.invoke_stateful("main")


def in_turns(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the seconds of each call: medians of many turns."""
    samples: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(_ROUNDS):
        for call, seconds in zip(calls, samples, strict=True):
            number, began = 0, time.perf_counter()
            while time.perf_counter() - began < _LEAST_SEC:
                call()
                number += 1
            seconds.append((time.perf_counter() - began) / number)
    return [median(seconds) for seconds in samples]


def measure(name: str, folder: Path, threads: int, trials: int) -> list[str]:
    """Return a line of the table."""
    target = cores_target(threads)
    path = Path(tempfile.mkdtemp(dir=folder)) / "form.onnx"
    path.write_bytes(FORMS[name]().SerializeToString())
    binding = import_model(path).binding
    separate, combined, ours = (
        load_relax(path, binding, target, select=select) for select in (select_none, always, select_faster)
    )
    tasks = {
        task.workload.key: task
        for loaded in (separate, combined, ours)
        for task in tasks_of(primfunc_workloads(loaded.module), target)
        if task.workload.flops > 0
    }
    records: Sequence[TuningRecord] = ()
    if trials:
        with LocalBuilder() as builder, LocalRunner(threads=threads) as runner:
            records = tune(
                list(tasks.values()),
                budget=Budget(trials=trials * len(tasks)),
                measure_option=MeasureOption(builder=builder, runner=runner),
            ).records
    kernels = [len(primfunc_workloads(loaded.module)) for loaded in (separate, combined)]
    is_chosen = _keys(ours) != _keys(separate)
    default = in_turns([build(loaded, target, (), folder) for loaded in (separate, combined)])
    tuned = in_turns([build(loaded, target, records, folder) for loaded in (separate, combined)])
    return [
        name,
        f"{kernels[0]} → {kernels[1]}",
        *(
            f"{1e6 * before:,.0f} → {1e6 * after:,.0f} ({after / before:.2f}×)"
            for before, after in (default, tuned)
        ),
        "yes" if is_chosen else "no",
    ]


def _keys(loaded: RelaxNetwork) -> list[str]:
    return [kernel.workload_key for kernel in primfunc_workloads(loaded.module)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=list(FORMS), metavar="FORM")
    parser.add_argument(
        "--trials", type=int, default=32, help="of each kernel; 0 compares default schedules alone"
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    head = ["Form", "Kernels", "Default schedules, µs", "Tuned, µs", "Combined by our rule"]
    with tempfile.TemporaryDirectory(prefix="tunefarm-bench-") as folder:
        print_table(
            head,
            (measure(name, Path(folder), options.threads, options.trials) for name in options.forms),
        )


if __name__ == "__main__":
    main()
