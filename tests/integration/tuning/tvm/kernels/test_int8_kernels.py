"""Depthwise convolutions of quantised networks read bytes, and agree with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx_models import GraphBuilder
from tvm import relax

from tunefarm_tuning.artifact.machine_check import cpu_flags
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.codegen.graph_build import build_model
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.tasks.extract import primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import RelaxNetwork, load_relax
from tunefarm_tuning.workload.binding import Binding

VNNI = parse_target("llvm -mcpu=cascadelake")
NAME = "depthwise_conv2d_of_bytes"

needs_vnni = pytest.mark.skipif("avx512_vnni" not in cpu_flags(), reason="this CPU has no avx512_vnni")


def depthwise(
    dtype: Any,
    zero: int,
    *,
    channels: int = 24,
    kernel: int = 3,
    steps: bool = False,
    shape: tuple[int, int, int] = (1, 11, 10),
    rounds: bool = True,
    **how: Any,
) -> onnx.ModelProto:
    """A depthwise convolution of quantised activations, with weights of floats or of `steps` of a scale per channel.

    Its input, of a batch, height and width, is rounded by the network, or comes as integers.
    """
    g = GraphBuilder(seed=4)
    scale, zero_point = g.constant(np.float32(0.013)), g.constant(np.array(zero, dtype))
    batch, *sizes = shape
    if rounds:
        q = g.node("QuantizeLinear", g.input("x", [batch, channels, *sizes]), scale, zero_point)
    else:
        q = g.input("x", [batch, channels, *sizes], onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    x = g.node("DequantizeLinear", q, scale, zero_point)
    weights = g.weight(channels, 1, kernel, kernel)
    if steps:
        integers = np.random.default_rng(2).integers(-127, 128, (channels, 1, kernel, kernel)).astype(np.int8)
        scales = np.linspace(0.001, 0.004, channels).astype(np.float32)
        weights = g.node("DequantizeLinear", g.constant(integers), g.constant(scales), axis=0)
    y = g.node("Conv", x, weights, g.weight(channels), group=channels, **how)
    g.output(g.node("Relu", y))
    return g.model()


def loaded_from(network: onnx.ModelProto, folder: Path) -> RelaxNetwork:
    path = folder / "model.onnx"
    path.write_bytes(network.SerializeToString())
    return load_relax(path, Binding(), VNNI)


@needs_vnni
@pytest.mark.parametrize(
    "network",
    [
        depthwise(np.uint8, 0, pads=[1] * 4),
        depthwise(np.uint8, 117, pads=[1] * 4),
        depthwise(np.int8, -9, pads=[1, 0, 2, 1], strides=[2, 1]),
        depthwise(np.uint8, 255, channels=19, kernel=5, strides=[2, 2]),
        depthwise(np.int8, -128, channels=16, pads=[2] * 4, dilations=[2, 2]),
        depthwise(np.uint8, 117, channels=32, steps=True, pads=[1] * 4),
        depthwise(np.int8, -9, channels=16, steps=True, pads=[1, 0, 2, 1], strides=[2, 1]),
        depthwise(np.uint8, 255, channels=48, kernel=5, steps=True, strides=[2, 2]),
        depthwise(np.uint8, 3, channels=16, kernel=4, steps=True, pads=[0, 2, 1, 1], dilations=[1, 2]),
        depthwise(np.uint8, 3, channels=16, steps=True, pads=[2] * 4, dilations=[2, 2]),
        depthwise(np.uint8, 3, channels=40, steps=True, pads=[1] * 4),
        depthwise(np.uint8, 3, channels=16, steps=True, shape=(2, 5, 17), pads=[1] * 4),
        depthwise(np.uint8, 3, channels=16, steps=True, shape=(1, 9, 29), kernel=5, pads=[2] * 4),
        depthwise(np.int8, 3, channels=16, steps=True, rounds=False, pads=[1] * 4),
        depthwise(
            np.int8, 3, channels=16, kernel=4, steps=True, shape=(1, 8, 8), rounds=False, strides=[4, 4]
        ),
        depthwise(np.uint8, 3, channels=16, kernel=17, steps=True, shape=(1, 20, 20)),
    ],
)
def test_it_agrees_with_onnx_runtime(network: onnx.ModelProto, tmp_path: Path) -> None:
    loaded = loaded_from(network, tmp_path)
    (kernel,) = [kernel for kernel in primfunc_workloads(loaded.module) if NAME in kernel.name]
    assert any(str(param.ty.dtype.dtype) in ("uint8", "int8") for param in loaded.module[kernel.name].params)
    (spec,) = loaded.inputs
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.5, 1.5, spec.shape).astype(np.float32)
    if spec.dtype != "float32":
        x = rng.integers(-128, 128, spec.shape).astype(spec.dtype)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        network.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": x})
    build_model(loaded.module, VNNI, tmp_path / "lib.so")
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "lib.so")), tvm.cpu())
    given = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(
        given, expected, atol=2e-5 * max(1.0, float(np.abs(expected).max())), rtol=1e-5
    )


@pytest.mark.parametrize("steps", [False, True])
def test_it_is_a_tuning_task(steps: bool, tmp_path: Path) -> None:
    loaded = loaded_from(depthwise(np.uint8, 3, channels=32, steps=steps, pads=[1] * 4), tmp_path)
    (kernel,) = [kernel for kernel in primfunc_workloads(loaded.module) if NAME in kernel.name]
    assert kernel.not_tunable is None


@pytest.mark.parametrize(("dilation", "channels", "instructions"), [(1, 32, 10 * 3), (2, 32, 0), (1, 40, 0)])
def test_quantised_weights_multiply_with_the_instruction(
    dilation: int, channels: int, instructions: int, tmp_path: Path
) -> None:
    how = {"pads": [dilation] * 4, "dilations": [dilation, dilation]}
    loaded = loaded_from(depthwise(np.uint8, 3, channels=channels, steps=True, **how), tmp_path)
    (kernel,) = [kernel for kernel in primfunc_workloads(loaded.module) if NAME in kernel.name]
    scheduled = default_schedule(loaded.module[kernel.name], VNNI).with_attr("global_symbol", "main")
    with tvm_target(VNNI):
        built = tvm.tirx.build(tvm.IRModule({"main": scheduled}), target=tvm_target(VNNI))
    # all ten columns of a row in one tile, three columns of taps each
    assert str(built.inspect_source("asm")).count("vpdpbusd") == instructions


def test_floats_and_multipliers_stay(tmp_path: Path) -> None:
    g = GraphBuilder(seed=4)
    x = g.input("x", [1, 8, 11, 10])
    g.output(g.node("Conv", x, g.weight(8, 1, 3, 3), group=8))
    float_net = loaded_from(g.model(), tmp_path)
    assert not any(NAME in kernel.name for kernel in primfunc_workloads(float_net.module))
    g = GraphBuilder(seed=4)
    scale, zero = g.constant(np.float32(0.013)), g.constant(np.array(3, np.uint8))
    q = g.node("QuantizeLinear", g.input("x", [1, 8, 11, 10]), scale, zero)
    y = g.node("Conv", g.node("DequantizeLinear", q, scale, zero), g.weight(16, 1, 3, 3), group=8)
    g.output(y)
    wide = loaded_from(g.model(), tmp_path)
    assert not any(NAME in kernel.name for kernel in primfunc_workloads(wide.module))
