"""Convolutions with few output channels compute several pixels at a time, with the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from onnx_models import GraphBuilder
from onnx_reference import built_outputs, reference_outputs
from tvm import relax

from tunefarm_tuning.reference.comparison import compare_arrays
from tunefarm_tuning.reference.random_inputs import random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding

HOST = parse_target("host")


def network(
    folder: Path,
    *,
    outputs: int,
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    dilations: tuple[int, int] = (1, 1),
    groups: int = 1,
    size: tuple[int, int] = (96, 96),
    inputs: int = 16,
) -> Path:
    g = GraphBuilder(seed=outputs)
    x = g.input("x", [2, inputs, *size])
    weights = g.weight(outputs, inputs // groups, *kernel)
    y = g.node(
        "Conv",
        x,
        weights,
        g.weight(outputs),
        kernel_shape=list(kernel),
        strides=list(strides),
        pads=list(pads),
        dilations=list(dilations),
        group=groups,
    )
    g.output(g.node("Tanh", y))
    path = folder / "model.onnx"
    path.write_bytes(g.model().SerializeToString())
    return path


def conv_shapes(loaded: RelaxNetwork) -> list[tuple[int, ...]]:
    """Return the shapes of the weights of the network's convolutions: rows, pixels, inputs, outputs."""
    shapes: list[tuple[int, ...]] = []

    def look(node: Any) -> None:
        if (
            isinstance(node, tvm.ir.GenericConst)
            and len(node.value.shape) == 4
            and max(node.value.shape[:3]) > 1
        ):
            shapes.append(tuple(int(size) for size in node.value.shape))

    relax.analysis.post_order_visit(loaded.module["main"].body, look)
    return shapes


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    ("conv", "wider"),
    [
        ({"outputs": 1}, (3, 10, 16, 8)),
        ({"outputs": 2}, (3, 6, 16, 8)),
        ({"outputs": 3, "kernel": (9, 9), "pads": (4, 4, 4, 4)}, (9, 10, 16, 8)),
        ({"outputs": 3, "kernel": (4, 5), "pads": (0, 3, 2, 1), "size": (90, 96)}, (4, 6, 16, 8)),
        (
            {
                "outputs": 2,
                "kernel": (4, 5),
                "strides": (2, 2),
                "pads": (1, 2, 0, 1),
                "size": (190, 192),
            },
            (4, 11, 16, 8),
        ),
        (
            {"outputs": 2, "strides": (1, 2), "kernel": (3, 7), "pads": (1, 3, 1, 3), "size": (96, 192)},
            (3, 13, 16, 8),
        ),
        ({"outputs": 2, "dilations": (2, 1), "pads": (2, 1, 2, 1)}, (3, 6, 16, 8)),
    ],
)
def test_numbers_stay(conv: dict[str, Any], wider: tuple[int, ...], tmp_path: Path) -> None:
    path = network(tmp_path, **conv)
    loaded = load_relax(path, Binding(), HOST)
    assert conv_shapes(loaded) == [wider]
    values = random_inputs(loaded.inputs, seed=1)
    (ours,) = built_outputs(loaded, values, tmp_path)
    (theirs,) = reference_outputs(path, loaded, values)
    comparison = compare_arrays("y", ours, theirs)
    assert comparison.ok, comparison.message


@pytest.mark.parametrize(
    "conv",
    [
        {"outputs": 8},  # fill the lanes
        {"outputs": 5},  # two pixels' would be ten
        {"outputs": 3},  # two pixels' would be two vectors of NEON, where one is enough
        {"outputs": 1, "inputs": 4},  # few products, and each pixel read twice more
        {"outputs": 1, "size": (96, 97)},  # a prime number of pixels
        {"outputs": 1, "inputs": 256, "kernel": (1, 1), "pads": (0, 0, 0, 0)},  # as many zeros as lanes won
        {"outputs": 1, "dilations": (1, 2), "pads": (1, 2, 1, 2)},
        {"outputs": 4, "groups": 4},
        {"outputs": 1, "size": (8, 8)},  # too small to matter
    ],
)
def test_what_would_not_win_stays(conv: dict[str, Any], tmp_path: Path) -> None:
    ((*_, outputs),) = conv_shapes(load_relax(network(tmp_path, **conv), Binding(), HOST))
    assert outputs in (conv["outputs"], 1)  # of a group, one


@pytest.mark.parametrize(
    ("channels", "stride", "wider"), [(1, 1, (14, 32, 8)), (2, 2, (13, 32, 8)), (7, 1, (7, 32, 7))]
)
def test_a_signal_is_an_image_of_one_row(
    channels: int, stride: int, wider: tuple[int, ...], tmp_path: Path
) -> None:
    g = GraphBuilder(seed=channels)
    x = g.input("x", [1, 32, 4000])
    weights = g.weight(channels, 32, 7)
    g.output(g.node("Tanh", g.node("Conv", x, weights, g.weight(channels), strides=[stride], pads=[3, 3])))
    path = tmp_path / "model.onnx"
    path.write_bytes(g.model().SerializeToString())
    loaded = load_relax(path, Binding(), HOST)
    shapes: list[tuple[int, ...]] = []

    def look(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst) and len(node.value.shape) == 3 and node.value.shape[0] > 1:
            shapes.append(tuple(int(size) for size in node.value.shape))

    relax.analysis.post_order_visit(loaded.module["main"].body, look)
    assert shapes == [wider]
    values = random_inputs(loaded.inputs, seed=1)
    (ours,) = built_outputs(loaded, values, tmp_path)
    (theirs,) = reference_outputs(path, loaded, values)
    comparison = compare_arrays("y", ours, theirs)
    assert comparison.ok, comparison.message


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("outputs", [1, 20, 36, 85, 116])
def test_all_cpus_have_the_same_kernels(outputs: int, tmp_path: Path) -> None:
    """A farm's tasks of a model are those of all CPUs."""
    path = network(tmp_path, outputs=outputs)
    targets = ("llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v4", "llvm -mtriple=aarch64-linux-gnu")
    keys = [
        [
            kernel.workload_key
            for kernel in primfunc_workloads(load_relax(path, Binding(), parse_target(target)).module)
        ]
        for target in targets
    ]
    assert all(of_target == keys[0] for of_target in keys)


def test_no_pixel_is_left_out_or_counted_twice(tmp_path: Path) -> None:
    """Weights of one: each output says how many inputs its kernel reached."""
    g = GraphBuilder()
    x = g.input("x", [1, 64, 40, 40])
    weights = g.constant(np.ones((2, 64, 3, 3), np.float32))
    g.output(g.node("Conv", x, weights, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    path = tmp_path / "ones.onnx"
    path.write_bytes(g.model().SerializeToString())
    loaded = load_relax(path, Binding(), HOST)
    (output,) = built_outputs(loaded, [np.ones((1, 64, 40, 40), np.float32)], tmp_path)
    reached = np.full(40, 3.0)
    reached[[0, -1]] = 2.0
    assert np.array_equal(output[0, 0], 64 * np.outer(reached, reached))
    assert np.array_equal(output[0, 0], output[0, 1])
