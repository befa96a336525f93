"""Products in bfloat16 and of bytes are searched: MetaSchedule's rules tile the loops around the CPU's instruction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from emulated_arm import MAX, emulated_machine
from numpy.typing import NDArray
from onnx_models import GraphBuilder

from tunefarm_tuning.artifact.machine_check import cpu_flags
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.children.evolutionary import Search
from tunefarm_tuning.tvm.codegen.device_code import export
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS
from tunefarm_tuning.tvm.default_schedules.schedule import default_schedule
from tunefarm_tuning.tvm.space.design_space import DesignSpace
from tunefarm_tuning.tvm.tasks.extract import Kernel, as_workload, primfunc_workloads
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.precision import Precision

ZEN4 = parse_target("llvm -mcpu=znver4 -num-cores=2")
NEOVERSE_V2 = parse_target("llvm -mcpu=neoverse-v2 -mtriple=aarch64-linux-gnu -num-cores=2")
NEOVERSE_N1 = parse_target("llvm -mcpu=neoverse-n1 -mtriple=aarch64-linux-gnu -num-cores=2")
RUN_ON_ARM = """
import sys
from pathlib import Path
import numpy as np
import tvm
folder = Path(sys.argv[1])
results = []
for number in range(int(sys.argv[2])):
    with np.load(folder / "inputs.npz") as inputs:
        tensors = [tvm.runtime.tensor(inputs[name]) for name in inputs.files]
    tvm.runtime.load_module(str(folder / f"{number}.so"))["main"](*tensors)
    results.append(tensors[-1].numpy())
np.savez(folder / "outputs.npz", *results)
"""
needs_the_instruction = pytest.mark.skipif(
    not {"avx512_bf16", "avx512_vnni"} <= cpu_flags(), reason="this CPU has no avx512_bf16 and avx512_vnni"
)


def convolution() -> onnx.ModelProto:
    """A convolution of 19 rows and columns, which no good tile divides, that is padded, added to and rectified."""
    graph = GraphBuilder()
    x = graph.input("x", [1, 16, 19, 19])
    graph.output(
        graph.node("Relu", graph.node("Add", graph.conv(x, 16, 64), graph.input("y", [1, 64, 19, 19])))
    )
    return graph.model()


def product() -> onnx.ModelProto:
    graph = GraphBuilder()
    y = graph.node("MatMul", graph.input("x", [24, 96]), graph.weight(96, 128))
    graph.output(graph.node("Add", y, graph.weight(128)))
    return graph.model()


def row() -> onnx.ModelProto:
    graph = GraphBuilder()
    graph.output(graph.node("MatMul", graph.input("x", [1, 2048]), graph.weight(2048, 48)))
    return graph.model()


def rounded(graph: GraphBuilder, x: str, dtype: type) -> str:
    """Activations in quantised form."""
    scale, zero = graph.constant(np.float32(0.02)), graph.constant(np.array(7, dtype))
    return str(graph.node("DequantizeLinear", graph.node("QuantizeLinear", x, scale, zero), scale, zero))


def whole_weights(graph: GraphBuilder, *shape: int) -> str:
    values = np.random.default_rng(5).integers(-127, 128, shape).astype(np.int8)
    return str(graph.node("DequantizeLinear", graph.constant(values), graph.constant(np.float32(0.003))))


def byte_convolution() -> onnx.ModelProto:
    graph = GraphBuilder()
    x = rounded(graph, graph.input("x", [1, 16, 19, 19]), np.int8)
    y = graph.node("Conv", x, whole_weights(graph, 64, 16, 3, 3), pads=[1, 1, 1, 1])
    graph.output(graph.node("Relu", graph.node("Add", y, graph.input("y", [1, 64, 19, 19]))))
    return graph.model()


def byte_product() -> onnx.ModelProto:
    graph = GraphBuilder()
    x = rounded(graph, graph.input("x", [24, 96]), np.uint8)
    y = graph.node("MatMul", x, whole_weights(graph, 96, 128))
    graph.output(graph.node("Add", y, graph.weight(128)))
    return graph.model()


NETWORKS = {
    "convolution": convolution(),
    "product": product(),
    "row": row(),
    "bytes, convolution": byte_convolution(),
    "bytes, product": byte_product(),
}


def kernel(name: str, folder: Path, target: Target = ZEN4) -> Kernel:
    path = folder / "net.onnx"
    path.write_bytes(NETWORKS[name].SerializeToString())
    precision, prefix = (
        (Precision.AS_MODEL, "byte_") if name.startswith("bytes") else (Precision.BFLOAT16, "bfloat16_")
    )
    loaded = load_relax(path, Binding(), target, precision)
    (item,) = [each for each in primfunc_workloads(loaded.module) if prefix in each.name]
    assert item.not_tunable is None
    return item


def built(func: tvm.tirx.PrimFunc, target: Target = ZEN4) -> Any:
    with tvm_target(target), tvm.transform.PassContext(config=SPLIT_TAILS):
        module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        return tvm.tirx.build(module, target=tvm_target(target))


def arrays(item: Kernel) -> list[NDArray[Any]]:
    rng = np.random.default_rng(2)
    params = [(tuple(int(d) for d in p.ty.shape), str(p.ty.dtype.dtype)) for p in item.module["main"].params]

    def array(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        if "int" in dtype:
            return rng.integers(0, 100, shape).astype(dtype)
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    return [array(*param) for param in params]


def output(library: Any, inputs: list[NDArray[Any]]) -> NDArray[Any]:
    tensors = [tvm.runtime.tensor(array) for array in inputs]
    library(*tensors)
    return np.asarray(tensors[-1].numpy(), np.float32)


def configs(space: DesignSpace, count: int) -> list[Config]:
    """Return random configs, with and without tails where the space has both."""
    random = space.config_space.sample(np.random.default_rng(0), 40 * count)
    tails = [config for config in random if space.leaves_tails(config)]
    whole = [config for config in random if not space.leaves_tails(config)]
    return whole[:count] + tails[:count]


@needs_the_instruction
@pytest.mark.parametrize("name", NETWORKS)
def test_configs_are_right_and_use_the_instruction(name: str, tmp_path: Path) -> None:
    item = kernel(name, tmp_path)
    inputs = arrays(item)
    wanted = output(built(default_schedule(item.module["main"], ZEN4)), inputs)
    space = DesignSpace(item.module, ZEN4)
    some = configs(space, 4)
    assert len(some) >= 4
    assert "convolution" not in name or any(space.leaves_tails(config) for config in some)
    for config in some:
        schedule, _ = space.apply(config)
        library = built(schedule.mod["main"])
        assert ("vpdpbusd" if name.startswith("bytes") else "vdpbf16ps") in library.inspect_source("asm")
        results = output(library, inputs)
        np.testing.assert_allclose(results, wanted, rtol=1e-2, atol=1e-3 * np.abs(wanted).max())


# A Neoverse N1 has no products of bfloat16. A row is built in seconds, the others in half a minute.
@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(
            name, target, id=f"{name}-{cpu}", marks=[] if name == "row" else [pytest.mark.exhaustive]
        )
        for cpu, target in {"v2": NEOVERSE_V2, "n1": NEOVERSE_N1}.items()
        for name in NETWORKS
        if target is NEOVERSE_V2 or name.startswith("bytes")
    ],
)
def test_configs_for_arm_use_its_instruction(name: str, target: Target, tmp_path: Path) -> None:
    space = DesignSpace(kernel(name, tmp_path, target).module, target)
    some = configs(space, 4)
    assert any(space.leaves_tails(config) for config in some) or "convolution" not in name
    instruction = "smmla" if target is NEOVERSE_V2 else "sdot"
    if not name.startswith("bytes"):
        instruction = "bfdot" if name == "row" else "bfmmla"
    for config in some:
        schedule, _ = space.apply(config)
        assert f"\t{instruction}\t" in built(schedule.mod["main"], target).inspect_source("asm")


def test_the_space_tiles_all_loops_around_products_of_matrices(tmp_path: Path) -> None:
    for name, extents in (
        ("bytes, convolution", [1, 19, 10, 32, 3, 3, 2]),
        ("bytes, product", [12, 64, 12]),
    ):
        space = DesignSpace(kernel(name, tmp_path, NEOVERSE_V2).module, NEOVERSE_V2).config_space
        tiled = [sketch for sketch in space.sketches if sketch.structure]
        assert tiled
        for sketch in tiled:
            knobs = [knob for knob, axis in zip(sketch.knobs, sketch.axes, strict=True) if axis >= 0]
            assert [knob.extent for knob in knobs] == extents


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["bytes, convolution", "bytes, product"])
def test_configs_of_products_of_matrices_are_right_on_an_arm_cpu(name: str, tmp_path: Path) -> None:
    machine = emulated_machine(MAX)
    target = parse_target("llvm -mcpu=generic -mattr=+dotprod,+i8mm -mtriple=aarch64-linux-gnu -num-cores=2")
    item = kernel(name, tmp_path, target)
    space = DesignSpace(item.module, target)
    funcs = [default_schedule(item.module["main"], target)]
    funcs += [space.apply(config)[0].mod["main"] for config in configs(space, 6)]
    assert len(funcs) > 6
    for number, func in enumerate(funcs):
        export(built(func, target), tmp_path / f"{number}.so", tmp_path, target)
    np.savez(tmp_path / "inputs.npz", *arrays(item))
    (tmp_path / "run.py").write_text(RUN_ON_ARM)
    machine.run(tmp_path / "run.py", tmp_path, str(len(funcs)))
    with np.load(tmp_path / "outputs.npz") as outputs:
        wanted, *results = [outputs[name] for name in outputs.files]
    assert np.abs(wanted).max() > 0
    for result in results:
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_space_tiles_all_loops_around_the_instruction(name: str, tmp_path: Path) -> None:
    space = DesignSpace(kernel(name, tmp_path).module, ZEN4).config_space
    extents = {
        "convolution": [1, 19, 19, 4, 3, 3, 8],
        "product": [24, 8, 48],
        "row": [1, 3, 1024],
        "bytes, convolution": [1, 19, 19, 4, 3, 3, 4],
        "bytes, product": [24, 8, 24],
    }[name]
    tiled = [sketch for sketch in space.sketches if sketch.structure]
    assert tiled
    for sketch in tiled:
        knobs = [knob for knob, axis in zip(sketch.knobs, sketch.axes, strict=True) if axis >= 0]
        assert [knob.extent for knob in knobs] == extents


def test_other_workloads_are_scheduled_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(NETWORKS["product"].SerializeToString())
    (item,) = primfunc_workloads(load_relax(path, Binding(), ZEN4).module)
    assert DesignSpace(item.module, ZEN4).module.same_as(item.module)


@pytest.mark.exhaustive
def test_metaschedules_own_search_proposes_configs_of_the_space(tmp_path: Path) -> None:
    item = kernel("product", tmp_path)
    search = Search(as_workload(item).ir, ZEN4, seed=1, batch_size=4)
    proposed = search.propose()
    assert proposed
    space = DesignSpace(item.module, ZEN4)
    for config in proposed:
        space.apply(config)
