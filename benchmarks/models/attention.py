"""Time large attentions as one kernel and as three kernels: benchmarks/results/attention.md.

    python -m benchmarks.models.attention --output benchmarks/results/attention.md

Untuned, on two threads, in turns. The network with three kernels also returns the softmax, which keeps the pass from fusing it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

THREADS = 2
os.environ["TVM_NUM_THREADS"] = str(THREADS)

import numpy as np  # noqa: E402  (TVM reads the number of threads once)
import onnx  # noqa: E402
import tvm  # noqa: E402
from benchmarks.combined import in_turns  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from tvm import relax  # noqa: E402

from tunefarm_tuning.target.parse import parse_target  # noqa: E402
from tunefarm_tuning.tvm.base.lowering import register  # noqa: E402
from tunefarm_tuning.tvm.codegen.graph_build import build_model  # noqa: E402
from tunefarm_tuning.tvm.transform.pipeline import load_relax  # noqa: E402
from tunefarm_tuning.workload.binding import Binding  # noqa: E402

SHAPES = {
    "BERT-base, 256 tokens": (12, 256, 64, 256),
    "BERT-base, 512 tokens": (12, 512, 64, 512),
    "ViT-B/16 at 384 pixels": (12, 577, 64, 577),
    "DINOv2-S at 518 pixels": (6, 1370, 64, 1370),
    "Whisper-tiny's encoder": (6, 1500, 64, 1500),
    "SegFormer-B0, first stage at 512 pixels": (1, 16384, 32, 256),
    "Stable Diffusion, 64 x 64 pixels": (8, 4096, 40, 4096),
    "Stable Diffusion, 64 x 64 pixels, text": (8, 4096, 40, 77),
}
"""Heads, rows, their size, and keys."""


def network(heads: int, rows: int, size: int, keys: int, *, with_softmax: bool) -> onnx.ModelProto:
    """Return an attention of one sample."""
    shapes = {
        "query": [1, heads, rows, size],
        "key": [1, heads, size, keys],
        "value": [1, heads, keys, size],
        "result": [1, heads, rows, size],
        "shares": [1, heads, rows, keys],
    }
    info = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
    }
    nodes = [
        helper.make_node("MatMul", ["query", "key"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "value"], ["result"]),
    ]
    outputs = [info["result"], info["shares"]] if with_softmax else [info["result"]]
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [size**-0.5])
    graph = helper.make_graph(
        nodes, "attention", [info["query"], info["key"], info["value"]], outputs, [scale]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def compiled(model: onnx.ModelProto, arrays: list[Any], folder: Path) -> Callable[[], Any]:
    """Return what runs a network, compiled untuned."""
    path, library = folder / "model.onnx", folder / "model.so"
    onnx.save(model, path)
    target = parse_target("host")
    build_model(load_relax(path, Binding(), target).module, target, library)
    main = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())["main"]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    return lambda: main(*tensors)


def row_of(name: str, shape: tuple[int, int, int, int]) -> str:
    """Return the table's row of a shape."""
    heads, rows, size, keys = shape
    rng = np.random.default_rng(0)
    of_inputs = ((heads, rows, size), (heads, size, keys), (heads, keys, size))
    arrays = [rng.standard_normal((1, *of_input)).astype(np.float32) for of_input in of_inputs]
    fused, apart = (network(*shape, with_softmax=with_softmax) for with_softmax in (False, True))
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        ways = [
            compiled(fused, arrays, Path(first)),
            compiled(apart, arrays, Path(second)),
        ]
        fused_sec, apart_sec = in_turns(ways)
    products = 2 * heads * rows * keys * size
    cells = [
        f"{heads} x {rows} x {keys}, {size}",
        *(f"{sec * 1e3:.3g}" for sec in (fused_sec, apart_sec)),
        f"{fused_sec / apart_sec:.2f}",
        f"{products / fused_sec / 1e9:.0f}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    register()
    lines = [
        "# Large attentions",
        "",
        (
            f"Milliseconds of softmax(query x key) x value in float32, untuned, {THREADS} threads, medians of many turns. "
            f"Target: `{parse_target('host').key}`."
        ),
        "",
        "| Attention | heads x rows x keys, size | one kernel | three kernels | one / three | GMAC/s |",
        "|---|---|---|---|---|---|",
    ]
    for name, shape in SHAPES.items():
        lines.append(row_of(name, shape))
        print(lines[-1], flush=True)
    lines += [
        "",
        "Command: `python -m benchmarks.models.attention`. Decision: [0107](../../docs/adr/0107-large-attentions-are-one-kernel.md).",
        "",
    ]
    if arguments.output is not None:
        arguments.output.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
