"""Judge the default schedules of twelve kernels on Arm cores by ``llvm-mca``: no Arm silicon is used.

    python -m benchmarks.arm.tiles > benchmarks/results/arm.md

A kernel's hottest loop is the innermost one with the most fused multiply-adds. Its cycles per ``fmla``, by LLVM's model of the core, are
divided by those of the best loop body of all register tiles that the kernel can have: rows times vectors of sums that fit beside their
factors, each row's factor loaded a row ahead, and no more rows than the kernel has. Caches are not modelled. ``llvm-mca`` (Debian: ``llvm-19``; LLVM 14 models a Neoverse N1 as a
Cortex-A57) is found on the PATH, or named by
``--mca``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper

from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import packed_default_schedule
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding

CORES = ("cortex-a55", "cortex-a72", "cortex-a76", "neoverse-n1", "neoverse-v2")
CONVOLUTIONS = {
    "3x3, 64 of 56x56": (64, 56, 64, 3, 1),
    "3x3, 128 of 28x28": (128, 28, 128, 3, 1),
    "3x3, 256 of 14x14": (256, 14, 256, 3, 1),
    "3x3, 512 of 7x7": (512, 7, 512, 3, 1),
    "7x7, 3 of 224x224": (3, 224, 64, 7, 2),
    "1x1, 64 of 56x56": (64, 56, 256, 1, 1),
    "1x1, 256 of 14x14": (256, 14, 1024, 1, 1),
    "1x1, 96 of 14x14": (96, 14, 576, 1, 1),
}
"""Channels, image, results, kernel, stride."""
PRODUCTS = {
    "128 x 768 x 768": (128, 768, 768),
    "128 x 768 x 3072": (128, 768, 3072),
    "197 x 384 x 384": (197, 384, 384),
    "1 x 1024 x 1000": (1, 1024, 1000),
}
_ITERATIONS = 50
_REGISTERS = 32


def models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield the twelve networks of one kernel each."""
    rng = np.random.default_rng(0)
    for name, sizes in CONVOLUTIONS.items():
        yield name, convolution(*sizes)
    for name, (rows, depth, columns) in PRODUCTS.items():
        weight = rng.standard_normal((depth, columns)).astype(np.float32)
        yield name, _model(helper.make_node("MatMul", ["x", "w"], ["y"]), [rows, depth], weight)


def convolution(
    channels: int, size: int, results: int, kernel: int, stride: int, groups: int = 1
) -> onnx.ModelProto:
    """Return a network of a convolution."""
    weight = np.random.default_rng(0).standard_normal((results, channels // groups, kernel, kernel))
    sizes = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "kernel_shape": [kernel] * 2}
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups, **sizes)
    return _model(node, [1, channels, size, size], weight.astype(np.float32))


def _model(node: onnx.NodeProto, shape: Sequence[int], weight: np.ndarray) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "net", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def hottest_loop(assembly: str) -> list[str]:
    """Return the instructions of the innermost loop with the most ``fmla``; empty if there is none."""
    lines = assembly.splitlines()
    labels: dict[str, int] = {}
    hottest: list[str] = []
    for number, line in enumerate(lines):
        if label := re.match(r"^(\.\w+):", line):
            labels[label[1]] = number
        branch = re.match(r"^\t(?:b|b\.\w+|cbn?z|tbn?z)\t(?:.*, )?(\.\w+)\s*$", line)
        if branch is None or branch[1] not in labels:
            continue
        body = lines[labels[branch[1]] + 1 : number + 1]
        if not any(re.match(r"^\.\w+:", inner) for inner in body) and count_fmla(body) > count_fmla(hottest):
            hottest = [inner for inner in body if not inner.startswith("\t.")]
    return hottest


def count_fmla(body: Sequence[str]) -> int:
    """Return the number of vector multiply-adds."""
    return sum("\tfmla\t" in line for line in body)


def tile_body(rows: int, vectors: int) -> list[str]:
    """Return a loop body of `rows` times `vectors` sums; each row's factor is loaded a row ahead."""
    weights = [f"v{_REGISTERS - 1 - number}" for number in range(vectors)]
    factors = [f"v{_REGISTERS - 1 - vectors - number}" for number in range(2)]
    body = [f"\tldr\tq{name[1:]}, [x0, #{16 * number}]" for number, name in enumerate(weights)]
    body.append(f"\tldr\ts{factors[0][1:]}, [x1]")
    for row in range(rows):
        if row + 1 < rows:
            body.append(f"\tldr\ts{factors[(row + 1) % 2][1:]}, [x1, #{256 * (row + 1)}]")
        body += [
            f"\tfmla\tv{row * vectors + number}.4s, {weight}.4s, {factors[row % 2]}.s[0]"
            for number, weight in enumerate(weights)
        ]
    return [*body, f"\tadd\tx0, x0, #{16 * vectors}", "\tadd\tx1, x1, #4", "\tsubs\tx2, x2, #1"]


def tiles(most_rows: int = _REGISTERS) -> Iterator[tuple[int, int]]:
    """Yield the rows and vectors of all tiles that fit into the registers, of no more than so many rows."""
    for vectors in range(1, _REGISTERS):
        for rows in range(1, min(most_rows, (_REGISTERS - 2 - vectors) // vectors) + 1):
            yield rows, vectors


def rows_of(name: str) -> int:
    """Return the rows of a kernel: results that share weights."""
    if name in PRODUCTS:
        return PRODUCTS[name][0]
    _, size, _, _, stride = CONVOLUTIONS[name]
    return (size // stride) ** 2


def cycles_per_fmla(body: Sequence[str], core: str, mca: str) -> float:
    """Return the cycles per ``fmla`` of a loop by LLVM's model of the core."""
    command = [mca, "-mtriple=aarch64-linux-gnu", f"-mcpu={core}", f"-iterations={_ITERATIONS}"]
    told = subprocess.run(
        [*command, "-all-views=0", "-summary-view"],
        input="\n".join(body) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    total = re.search(r"Total Cycles:\s+(\d+)", told.stdout)
    assert total is not None, told.stdout
    return int(total[1]) / _ITERATIONS / count_fmla(body)


def kernel_loop(model: onnx.ModelProto, target: Target) -> list[str]:
    """Return the hottest loop of a network's kernel under its default schedule."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        path.write_bytes(model.SerializeToString())
        loaded = load_relax(path, Binding(), target)
    bodies = []
    for kernel in primfunc_workloads(loaded.module):
        if re.search("conv|matmul", kernel.name):
            func = packed_default_schedule(loaded.module[kernel.name], target).func
            with tvm_target(target), tvm.transform.PassContext(config=SPLIT_TAILS):
                mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
                built = tvm.tirx.build(mod, target=tvm_target(target))
            bodies.append(hottest_loop(str(built.inspect_source("asm"))))
    return max(bodies, key=count_fmla)


@cache
def best_tile(core: str, mca: str, most_rows: int = _REGISTERS) -> tuple[float, int, int]:
    """Return the least cycles per ``fmla`` of all tiles on a core, and that tile's rows and vectors."""
    return min((cycles_per_fmla(tile_body(*tile), core, mca), *tile) for tile in tiles(most_rows))


def bound(name: str, core: str, mca: str) -> float:
    """Return the least cycles per ``fmla`` of all tiles that a kernel can have on a core."""
    return best_tile(core, mca, min(rows_of(name), _REGISTERS))[0]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mca", default=shutil.which("llvm-mca-19") or shutil.which("llvm-mca"))
    parser.add_argument("--cores", nargs="+", default=CORES)
    options = parser.parse_args()
    if options.mca is None:
        sys.exit("there is no llvm-mca on the PATH: install LLVM's tools, or name it with --mca")
    networks = list(models())
    table: dict[str, list[float]] = {name: [] for name, _ in networks}
    for core in options.cores:
        target = parse_target(f"llvm -mcpu={core} -mtriple=aarch64-linux-gnu")
        for name, model in networks:
            table[name].append(cycles_per_fmla(kernel_loop(model, target), core, options.mca))
    print("| Kernel | " + " | ".join(options.cores) + " |\n|---|" + "---:|" * len(options.cores))
    ratios: list[list[float]] = [[] for _ in options.cores]
    for name, row in table.items():
        bounds = [bound(name, core, options.mca) for core in options.cores]
        cells = [f"{cycles:.2f} ({cycles / least:.2f})" for cycles, least in zip(row, bounds, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |")
        for number, (cycles, least) in enumerate(zip(row, bounds, strict=True)):
            ratios[number].append(cycles / least)
    for title, rows in (("Best tile", _REGISTERS), ("Best tile of one row", 1)):
        best = [best_tile(core, options.mca, rows) for core in options.cores]
        cells = [f"{cycles:.2f}: {rows} x {vectors}" for cycles, rows, vectors in best]
        print(f"| *{title}: rows x vectors* | " + " | ".join(cells) + " |")
    means = [f"{geometric_mean(core):.2f}, {median(core):.2f}" for core in ratios]
    print("| *Geometric mean, median of the ratios* | " + " | ".join(means) + " |")


if __name__ == "__main__":
    main()
