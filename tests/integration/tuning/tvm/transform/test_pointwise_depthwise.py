"""A pointwise and a depthwise convolution become one kernel where the image between is large, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from bare_kernels import TARGETS, run_bare
from onnx_models import GraphBuilder
from onnx_reference import checked_network

from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.tasks.extract import NotTunable, kernel_args, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision

CHANNELS = 32
Steps = Callable[[GraphBuilder, str], str]


def no_steps(_g: GraphBuilder, x: str) -> str:
    return x


def relu6(g: GraphBuilder, x: str) -> str:
    return g.node("Clip", x, g.constant(np.array(0, np.float32)), g.constant(np.array(6, np.float32)))


def silu(g: GraphBuilder, x: str) -> str:
    return g.node("Mul", x, g.node("Sigmoid", x))


def hard_swish(g: GraphBuilder, x: str) -> str:
    return g.node("HardSwish", x)


def scaled_per_channel(g: GraphBuilder, x: str) -> str:
    return g.node(
        "Tanh", g.node("Mul", g.constant(np.linspace(-1, 1, CHANNELS, dtype=np.float32)[:, None, None]), x)
    )


def network(
    between: Steps = relu6,
    after: Steps = relu6,
    *,
    image: tuple[int, int] = (97, 95),
    kernel: int = 3,
    stride: int = 1,
    pads: tuple[int, int, int, int] | None = None,
    batch: int = 1,
    inputs: int = 8,
    dilation: int = 1,
    read_twice: bool = False,
) -> GraphBuilder:
    """An expansion of 8 channels to 32, a depthwise convolution, and what is done to the results of both."""
    g = GraphBuilder(seed=5)
    x = g.input("x", [batch, inputs, *image])
    expanded = g.node("Conv", x, g.weight(CHANNELS, inputs, 1, 1), g.weight(CHANNELS))
    expanded = between(g, expanded)
    pad = dilation * (kernel // 2)
    convolved = g.node(
        "Conv", expanded, g.weight(CHANNELS, 1, kernel, kernel), g.weight(CHANNELS), group=CHANNELS,
        pads=pads or [pad] * 4, strides=[stride, stride], dilations=[dilation, dilation],
    )  # fmt: skip
    g.output(after(g, convolved))
    if read_twice:
        g.output(g.node("Neg", expanded))
    return g


def pairs(loaded: RelaxNetwork) -> int:
    kernels = primfunc_workloads(loaded.module)
    return sum(kernel.weight for kernel in kernels if kernel.not_tunable is NotTunable.POINTWISE_DEPTHWISE)


@pytest.mark.parametrize(
    "pair",
    [
        network,
        lambda: network(silu, silu, kernel=5, stride=2),
        lambda: network(no_steps, no_steps, stride=2, pads=(0, 0, 1, 1)),
        lambda: network(hard_swish, scaled_per_channel, kernel=7, pads=(1, 3, 2, 0)),
        lambda: network(scaled_per_channel, no_steps, batch=3),
        lambda: network(image=(6, 1500), stride=3),
        lambda: network(image=(4000, 3), kernel=3, pads=(0, 0, 0, 0)),
        lambda: network(relu6, lambda g, x: g.node("GlobalAveragePool", silu(g, x))),
    ],
    ids=["relu6", "silu", "strides", "wide", "batch", "few rows", "few columns", "pooled"],
)
def test_a_pair_is_one_kernel(pair: Callable[[], GraphBuilder], tmp_path: Path) -> None:
    loaded = checked_network(pair(), tmp_path)
    assert pairs(loaded) == 1
    assert not any("conv2d" in kernel.name for kernel in primfunc_workloads(loaded.module))


@pytest.mark.parametrize(
    "unlike",
    [
        lambda: network(image=(80, 80)),
        lambda: network(read_twice=True),
        lambda: network(dilation=2),
        lambda: network(inputs=4096),
        lambda: network(lambda g, x: g.node("Softmax", x, axis=3)),
        lambda: network(lambda g, x: g.node("Add", x, g.weight(1, 1, 97, 95))),
    ],
    ids=["small", "read twice", "dilated", "many weights", "softmax", "a constant image"],
)
def test_others_stay_as_they_are(unlike: Callable[[], GraphBuilder], tmp_path: Path) -> None:
    assert pairs(checked_network(unlike(), tmp_path)) == 0


def test_what_reads_a_step_on_the_way_gets_it(tmp_path: Path) -> None:
    """The kernel ends where its value is read more than once."""

    def with_a_residual(g: GraphBuilder, x: str) -> str:
        first = g.node("Relu", x)
        return g.node("Add", first, g.node("AveragePool", first, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))

    assert pairs(checked_network(network(after=with_a_residual), tmp_path)) == 1


def test_numbers_that_a_network_computes_are_no_images(tmp_path: Path) -> None:
    g = GraphBuilder(seed=5)
    scale = g.node("Sigmoid", g.node("ReduceMean", g.input("x", [4]), keepdims=0))
    image = g.node("Mul", g.input("image", [1, CHANNELS, 96, 96]), scale)
    g.output(g.node("Conv", image, g.weight(CHANNELS, 1, 3, 3), group=CHANNELS, pads=[1] * 4))
    g.output(g.node("Mul", scale, scale))
    assert pairs(checked_network(g, tmp_path)) == 0


def test_a_chain_has_a_kernel_for_each_pair(tmp_path: Path) -> None:
    g = GraphBuilder(seed=5)
    x = g.input("x", [1, 16, 96, 96])
    for _ in range(2):
        x = g.node("Relu", g.node("Conv", x, g.weight(CHANNELS, 16, 1, 1), g.weight(CHANNELS)))
        x = g.node("Conv", x, g.weight(CHANNELS, 1, 3, 3), group=CHANNELS, pads=[1] * 4)
        x = g.node("Conv", x, g.weight(16, CHANNELS, 1, 1))
    g.output(x)
    assert pairs(checked_network(g, tmp_path)) == 2


def test_other_precisions_keep_their_kernels(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network().model(), path)
    target = parse_target("llvm -mcpu=sapphirerapids")
    assert pairs(load_relax(path, Binding(), target)) == 1
    for precision in (Precision.BFLOAT16, Precision.BFLOAT16_WEIGHTS):
        assert pairs(load_relax(path, Binding(), target, precision)) == 0


def test_all_cpus_have_the_same_tasks(tmp_path: Path) -> None:
    """What is fused depends on the network alone; how its kernel is cut depends on the CPU."""
    path = tmp_path / "model.onnx"
    onnx.save(network().model(), path)
    targets = (
        "llvm -mcpu=haswell",
        "llvm -mcpu=skylake-avx512 -num-cores=16",
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
    )
    assert [pairs(load_relax(path, Binding(), parse_target(target))) for target in targets] == [1, 1, 1]


@pytest.mark.parametrize("machine", ["aarch64", "riscv64"])
def test_its_kernel_computes_the_same_on_other_machines(machine: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(network(image=(92, 90), stride=2).model(), path)
    kernels = primfunc_workloads(load_relax(path, Binding(), TARGETS[machine]).module)
    (kernel,) = (each for each in kernels if each.not_tunable is NotTunable.POINTWISE_DEPTHWISE)
    given = random_inputs(kernel_args(kernel.module), seed=3, kind=InputKind.NORMAL)
    image, pointwise, depthwise, before, after, result = given
    *_, actual = run_bare(kernel.module["main"], machine, given, tmp_path)
    weights = pointwise.transpose(1, 0, 2).reshape(pointwise.shape[1], -1)
    between = np.pad(np.clip(image[0] @ weights + before, 0, 6), ((1, 1), (1, 1), (0, 0)))
    rows, columns = (2 * size for size in result.shape[1:3])
    expected = sum(
        between[row : row + rows : 2, column : column + columns : 2] * depthwise[row, column]
        for row in range(3)
        for column in range(3)
    )
    np.testing.assert_allclose(actual[0], np.clip(expected + after, 0, 6), rtol=1e-4, atol=1e-4)
