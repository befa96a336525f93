"""Dilated convolutions whose taps read padding for the most part are computed tap by tap, with the same results."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx_models import GraphBuilder
from onnx_reference import checked_network

from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork


def network(
    *,
    image: tuple[int, int] = (14, 14),
    kernel: tuple[int, int] = (3, 3),
    dilation: tuple[int, int] = (12, 12),
    pads: tuple[int, int, int, int] = (12, 12, 12, 12),
    stride: int = 1,
    channels: int = 128,
    batch: int = 1,
) -> GraphBuilder:
    """A dilated convolution with a bias and a step behind it, as in DeepLab."""
    g = GraphBuilder(seed=3)
    x = g.input("x", [batch, channels, *image])
    convolved = g.node(
        "Conv",
        x,
        g.weight(channels, channels, *kernel),
        g.weight(channels),
        dilations=list(dilation),
        pads=list(pads),
        strides=[stride] * 2,
    )
    g.output(g.node("Relu", convolved))
    return g


def convolutions(loaded: RelaxNetwork) -> int:
    """Return how many convolutions run."""
    return sum(kernel.weight for kernel in primfunc_workloads(loaded.module) if "conv2d" in kernel.name)


@pytest.mark.parametrize(
    ("g", "count"),
    [
        (network(), 9),
        (network(batch=2, channels=96), 9),
        (network(dilation=(12, 3), pads=(12, 3, 12, 3), kernel=(3, 1), image=(14, 30)), 3),
        (network(kernel=(2, 3), dilation=(9, 11), pads=(10, 0, 2, 13), image=(12, 16), channels=256), 4),
    ],
    ids=["DeepLab", "batch", "one axis", "uneven"],
)
def test_each_tap_is_a_convolution_of_what_it_reaches(g: GraphBuilder, count: int, tmp_path: Path) -> None:
    assert convolutions(checked_network(g, tmp_path)) == count


@pytest.mark.parametrize(
    "g",
    [
        network(dilation=(3, 3), pads=(3, 3, 3, 3)),
        network(channels=16),
        network(stride=2),
    ],
    ids=["most taps reach the image", "few products", "strides"],
)
def test_others_stay_as_they_are(g: GraphBuilder, tmp_path: Path) -> None:
    assert convolutions(checked_network(g, tmp_path)) == 1
