"""Default schedules compute what unscheduled loops do, for many operators, shapes and targets."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx_models import GraphBuilder
from scheduled_networks import (
    ARM,
    AVX2,
    AVX512,
    HOST,
    NETS,
    ON_OLDER_CPUS,
    PLAIN_X86,
    Net,
    conv,
    dense,
    kernels_of,
    run,
    single,
)
from tvm import relax, te, tirx
from tvm.s_tir import Schedule
from tvm_ffi import structural_equal

from tunefarm_tuning.reference.comparison import compare_outputs
from tunefarm_tuning.reference.random_inputs import InputKind, random_inputs
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.target import tvm_target
from tunefarm_tuning.tvm.base.tir import int64_sizes
from tunefarm_tuning.tvm.codegen import graph_build
from tunefarm_tuning.tvm.codegen.graph_build import build_kernel
from tunefarm_tuning.tvm.codegen.scheduled_build import packed_default
from tunefarm_tuning.tvm.default_schedules import schedule as default_schedule_module
from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS, partition_points
from tunefarm_tuning.tvm.default_schedules.cpu.ragged_reductions import vectorize_ragged_reductions
from tunefarm_tuning.tvm.default_schedules.schedule import NoDefaultSchedule, default_schedule
from tunefarm_tuning.tvm.default_schedules.stage import Machine
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, pack, packable_weights
from tunefarm_tuning.tvm.tasks.extract import Kernel, kernel_args
from tunefarm_tuning.tvm.transform.pipeline import load_relax
from tunefarm_tuning.workload.binding import Binding


@pytest.mark.matrix(every=16, each_value=False)
@pytest.mark.parametrize("name", NETS)
def test_it_computes_what_unscheduled_loops_do(name: str, tmp_path: Path) -> None:
    kernels = kernels_of(NETS[name], tmp_path, HOST)
    for kernel in kernels:
        expected = run(kernel, tmp_path, HOST, default_schedules=False)
        names = [spec.name for spec in kernel_args(kernel.module)]
        for target in (HOST, PLAIN_X86, AVX2) if name in ON_OLDER_CPUS else (HOST,):
            actual = run(kernel, tmp_path, target, default_schedules=True)
            for comparison in compare_outputs(names, actual, expected):
                assert comparison.ok, (kernel.name, target.key, comparison)


def is_scheduled(kernel: Kernel, target: Target = HOST) -> bool:
    try:
        default_schedule(kernel.module["main"], target)
    except NoDefaultSchedule:
        return False
    return True


WITHOUT_A_RULE = {"cumsum", "sum-all"}


@pytest.mark.matrix(every=6, each_value=False)
@pytest.mark.parametrize("name", sorted(NETS.keys() - WITHOUT_A_RULE))
def test_nearly_all_kernels_have_a_rule(name: str, tmp_path: Path) -> None:
    for kernel in kernels_of(NETS[name], tmp_path, HOST):
        assert is_scheduled(kernel), kernel.name


def test_a_kernel_of_another_name_is_not_scheduled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network's kernels have their own names; alone, they are all called ``main``."""
    kernel, *_ = kernels_of(NETS["conv-3x3"], tmp_path, HOST)
    alone = kernel.module["main"].without_attr("op_pattern").with_attr("global_symbol", "main")
    scheduled = default_schedule(alone, HOST)
    monkeypatch.setattr(default_schedule_module, "_schedule_by_rule", None)
    again = default_schedule(alone.with_attr({"global_symbol": "fused_conv2d", "op_pattern": 4}), HOST)
    assert again.attrs["global_symbol"] == "fused_conv2d"
    assert structural_equal(again.body, scheduled.body, map_free_vars=True)


@pytest.mark.parametrize(
    "name", ["conv-3x3", "conv-depthwise", "dense-odd", "softmax", "layer-norm", "transpose"]
)
def test_it_builds_for_another_kind_of_machine(name: str, tmp_path: Path) -> None:
    for kernel in kernels_of(NETS[name], tmp_path, ARM):
        scheduled = default_schedule(kernel.module["main"], ARM)
        module = tvm.IRModule({"main": scheduled.with_attr("global_symbol", "main")})
        assert "main" in tvm.tirx.build(module, tvm_target(ARM)).inspect_source("asm")


@pytest.mark.parametrize("name", ["concat-many", "concat-then-scaled"])
def test_partitioned_loops_have_no_conditions(name: str, tmp_path: Path) -> None:
    (kernel,) = kernels_of(NETS[name], tmp_path, AVX512)
    scheduled = default_schedule(kernel.module["main"], AVX512).with_attr("global_symbol", "main")
    code = tvm.tirx.build(tvm.IRModule({"main": scheduled}), tvm_target(AVX512)).inspect_source("ll")
    body = code[code.index("@main_compute_(ptr noalias") :].partition("\n}")[0]
    assert re.search(r"memcpy|load <16 x float>", body)
    assert not re.search(r"masked|load float", body)


@pytest.mark.parametrize("name", ["softmax-197", "sum-last-odd", "max-last-odd"])
def test_what_no_vector_divides_is_summed_up_in_vectors(name: str, tmp_path: Path) -> None:
    kernel, *_ = kernels_of(
        NETS[name], tmp_path, AVX512
    )  # a largest element is doubled in a kernel of its own
    scheduled = default_schedule(kernel.module["main"], AVX512).with_attr("global_symbol", "main")
    code = tvm.tirx.build(tvm.IRModule({"main": scheduled}), tvm_target(AVX512)).inspect_source("ll")
    combined = r"select <16 x i1>|llvm.max\w+.v16f32" if name == "max-last-odd" else r"fadd <16 x float>"
    assert re.search(combined, code)


def odd_reduction(kind: str) -> tvm.IRModule:
    """Return ``y[i] = combined over k of x[i, k]`` for 67 k, or something like it that lanes would get wrong."""
    start = {"another beginning": 1.0, "a beginning that is read": "b[vi]"}.get(kind, 0.0)
    first, end = (3, 70) if kind == "another first element" else (0, 67)
    term = {
        "its own result": "x[vi, vk] - y[vi] * T.float32(0.1)",
        "a condition": "T.Select(vk < 5, x[vi, vk], b[vi])",
    }
    source = f"""
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4, 70), "float32"), b: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in range(4):
        for k in T.serial({first}, {end}):
            with T.sblock("sum"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(({first}, {end}), k)
                with T.init():
                    y[vi] = {start if isinstance(start, str) else f"T.float32({start})"}
                y[vi] = y[vi] + ({term.get(kind, "x[vi, vk]")})
"""
    return tvm.IRModule({"main": tvm.script.from_source(source)})


@pytest.mark.parametrize(
    ("kind", "in_lanes"),
    [
        ("a plain sum", True),
        ("another beginning", False),
        ("a beginning that is read", False),
        ("another first element", False),
        ("its own result", False),
        ("a condition", False),
    ],
)
def test_reductions_use_lanes_where_that_is_exact(kind: str, in_lanes: bool) -> None:
    func = odd_reduction(kind)["main"]
    vectorized = vectorize_ragged_reductions(func, Machine.of(HOST))
    assert ("y_lanes" in vectorized.script()) == in_lanes
    assert vectorized.same_as(func) != in_lanes


@pytest.mark.parametrize(
    ("points", "condition"),
    [
        ([3], lambda i, _: i < 3),
        ([4], lambda i, _: i <= 3),
        ([4], lambda i, _: i > 3),
        ([3], lambda i, _: i >= 3),
        ([3, 4], lambda i, _: i.equal(3)),
        ([5], lambda i, _: 7 - i > 2),
        ([2], lambda i, _: 3 * i < 5),
        ([2, 8], lambda i, _: tirx.all(i >= 2, i < 8)),
        ([], lambda i, _: i < 0),
        ([], lambda i, _: i < 10),
        ([], lambda i, j: i < j),
        ([], lambda i, j: (i + j) % 2 < 1),
    ],
)
def test_partition_points_are_where_conditions_on_one_variable_change(
    points: list[int], condition: Callable[[Any, Any], Any]
) -> None:
    x = te.placeholder((10, 10), name="x")
    y = te.compute((10, 10), lambda i, j: tirx.if_then_else(condition(i, j), x[i, j], x[j, i]), name="y")
    sch = Schedule(tvm.IRModule({"main": te.create_prim_func([x, y])}))
    by_loop = partition_points(sch, sch.get_sblock("y"))
    assert by_loop == ({0: points} if points else {})


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("conv-3x3", "softmax", "concat"):
        for kernel in kernels_of(NETS[name], tmp_path, HOST):
            first, second = (default_schedule(kernel.module["main"], HOST) for _ in range(2))
            assert structural_equal(first, second)


@pytest.mark.parametrize(
    "net", [dense((1, 512), 1000), dense((1, 40, 120), 1879)], ids=["classes", "characters"]
)
def test_threads_share_a_product_whatever_its_columns(net: Net, tmp_path: Path) -> None:
    """Of one row, and with columns that no vector divides, where the tail has a loop of its own."""
    (kernel,) = kernels_of(net, tmp_path, HOST)
    assert "T.parallel" in default_schedule(kernel.module["main"], HOST).script()
    names = [spec.name for spec in kernel_args(kernel.module)]
    unscheduled, scheduled = (run(kernel, tmp_path, HOST, default_schedules=given) for given in (False, True))
    assert all(comparison.ok for comparison in compare_outputs(names, scheduled, unscheduled))


def test_a_row_that_no_vector_divides_is_computed_in_whole_vectors(tmp_path: Path) -> None:
    (kernel,) = kernels_of(NETS["softmax-197"], tmp_path, AVX512)
    lanes = re.findall(
        r"T\.vectorized\(T\.int64\((\d+)\)\)", default_schedule(kernel.module["main"], AVX512).script()
    )
    assert lanes.count("16") >= 4


@pytest.mark.matrix(every=9, each_value=False)
@pytest.mark.parametrize(
    "target", [AVX2, parse_target("llvm -mcpu=x86-64-v4"), ARM], ids=["avx2", "avx512", "arm"]
)
@pytest.mark.parametrize("name", [net for net in NETS if net.startswith("conv")])
def test_convolutions_have_a_rule_on_every_machine(name: str, target: Target, tmp_path: Path) -> None:
    kernels = kernels_of(NETS[name], tmp_path, target)
    assert all(is_scheduled(kernel, target) for kernel in kernels if "conv" in kernel.name)


@pytest.mark.parametrize("name", ["conv-odd-channels", "dense-50"])
def test_the_tail_of_a_loop_leaves_its_main_part_vectorised(name: str, tmp_path: Path) -> None:
    kernel = next(
        candidate
        for candidate in kernels_of(NETS[name], tmp_path, AVX2)
        if candidate.name.startswith("fused_")
    )
    scheduled = default_schedule(kernel.module["main"], AVX2).with_attr("global_symbol", "main")
    with tvm.transform.PassContext(config=SPLIT_TAILS):
        built = tvm.tirx.build(tvm.IRModule({"main": scheduled}), tvm_target(AVX2))
    assert re.search(r"(fmul|fmuladd|fma)[^\n]*<[48] x float>", built.inspect_source("ll"))


def test_a_kernel_of_any_number_of_rows_is_vectorised_along_them(tmp_path: Path) -> None:
    extent = te.var("n", "int64")
    tensor = te.placeholder((extent, 24), name="x")
    func = te.create_prim_func([tensor, te.compute((extent, 24), lambda i, j: tensor[i, j] + 1.0, name="y")])
    path = tmp_path / "kernel.so"
    build_kernel(PackedKernel(func=default_schedule(func, HOST)), HOST, path, default_schedules=False)
    main = tvm.runtime.load_module(str(path))["main"]
    for rows in (1, 7, 251, 3000):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float32)
        y = tvm.runtime.tensor(np.zeros_like(x))
        main(tvm.runtime.tensor(x), y)
        np.testing.assert_array_equal(y.numpy(), x + 1)


def test_a_schedule_that_does_not_build_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
        schedule = tvm.s_tir.Schedule(default_schedule(func, target).with_attr("global_symbol", "main"))
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            schedule.bind(schedule.get_loops(block)[0], "threadIdx.x")  # as if it were a GPU
        attempts.append(schedule.mod["main"].with_attr("tirx.is_scheduled", True))
        return attempts[-1]

    attempts: list[Any] = []
    (kernel,) = kernels_of(single("Exp", (8, 64)), tmp_path, HOST)
    expected = run(kernel, tmp_path, HOST, default_schedules=False)
    monkeypatch.setattr(default_schedule_module, "default_schedule", broken)
    actual = run(kernel, tmp_path, HOST, default_schedules=True)
    assert attempts
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-6)
    with pytest.raises(Exception):  # noqa: B017  (TVM's many)
        tvm.tirx.build(tvm.IRModule({"main": attempts[0]}), tvm_target(HOST))


def with_packed_default(net: Net, folder: Path) -> tuple[Kernel, PackedKernel]:
    """Return the one kernel of a network that has weights to pack, and its default."""
    kernel = next(
        candidate for candidate in kernels_of(net, folder, HOST) if packable_weights(candidate.module["main"])
    )
    return kernel, packed_default(PackedKernel(func=kernel.module["main"]), HOST)


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize(
    "net",
    [
        conv((1, 64, 9, 11), 160, 3),
        conv((1, 256, 5, 5), 304, 1, 2),
        conv((1, 192, 9, 9), 256, 3, 1, 2),  # columns of two groups
        dense((20, 192), 368),
        dense((1, 512), 384),  # read once
        dense((12, 64), 64),  # 16 KiB: they would fit into the first cache in any order
        conv((1, 32, 9, 9), 64, 3),
    ],
)
def test_weights_lie_as_the_default_reads_them(net: Net, tmp_path: Path) -> None:
    kernel, packed = with_packed_default(net, tmp_path)
    ((number, packing),) = packed.packings.items()
    assert packing.packed_shape[1:-1] == packing.shape[:-1], "panels of some columns each"
    assert not re.search(r"_global\[[^\]]*\] = ", str(packed.func)), "nothing is left to copy"
    expected = run(kernel, tmp_path, HOST, default_schedules=False)
    build_kernel(packed, HOST, tmp_path / "packed.so")
    library = tvm.runtime.load_module(str(tmp_path / "packed.so"))
    args = [
        tvm.runtime.tensor(array)
        for array in random_inputs(kernel_args(kernel.module), seed=3, kind=InputKind.POSITIVE)
    ]
    weight = args[number].numpy()
    args[number] = tvm.runtime.empty(weight.shape, str(weight.dtype))
    library[f"pack_{number}"](tvm.runtime.tensor(weight), args[number])
    np.testing.assert_array_equal(pack(weight, packing).reshape(-1), args[number].numpy().reshape(-1))
    library["main"](*args)
    np.testing.assert_allclose(args[-1].numpy(), expected[-1], rtol=1e-4, atol=1e-4)


def test_weights_that_would_end_within_a_vector_are_packed_with_zeros_behind_them(tmp_path: Path) -> None:
    _, packed = with_packed_default(dense((20, 1024), 99), tmp_path)
    (packing,) = packed.packings.values()
    # With 32 registers a tile has room for all columns.
    width = 104 if Machine.of(HOST).registers == 32 else Machine.of(HOST).lanes("float32")
    assert (packing.shape, packing.packed_shape[1:]) == ((1024, 104), (1024, width))


def test_a_network_whose_packed_defaults_do_not_build_takes_its_weights_as_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    g = GraphBuilder(1)
    g.output(conv((1, 64, 9, 11), 160, 3)(g), None)
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.shape_inference.infer_shapes(g.model()).SerializeToString())
    loaded = load_relax(path, Binding(), HOST)
    put_in = graph_build.put_in
    packed: list[str] = []

    def broken(module: tvm.IRModule, kernels: dict[str, PackedKernel]) -> tvm.IRModule:
        packed.extend(kernels)
        changed = put_in(module, kernels)
        return tvm.IRModule(
            {name: func for name, func in changed.functions.items() if "packed" not in str(name)}
        )

    monkeypatch.setattr(graph_build, "put_in", broken)
    graph_build.build_model(loaded.module, HOST, tmp_path / "model.so")
    assert packed
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "model.so")), tvm.cpu())
    assert machine["main"](tvm.runtime.tensor(np.ones((1, 64, 9, 11), np.float32))).shape == (1, 160, 9, 11)


@pytest.mark.parametrize("kind", ["gate", "every second"])
def test_what_reads_results_in_another_way_than_a_crop_keeps_a_schedule(kind: str) -> None:
    x, w = (
        te.placeholder(int64_sizes(shape), "float32", name=name)
        for name, shape in (("x", (64, 32)), ("w", (32, 64)))
    )
    k = te.reduce_axis((0, tvm.tirx.IntImm("int64", 32)), name="k")
    sums = te.compute(int64_sizes((64, 64)), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="sums")

    def element(i: Any, j: Any) -> Any:
        return sums[i, j] * sums[i, j + 32] if kind == "gate" else sums[i, 2 * j]

    func = te.create_prim_func(
        [x, w, te.compute(int64_sizes((64, 32)), element)], index_dtype_override="int64"
    )
    scheduled = default_schedule(func, HOST).with_attr("global_symbol", "main")
    main = tvm.compile(tvm.IRModule({"main": scheduled}), target=tvm_target(HOST))["main"]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 32), (32, 64)))
    result = tvm.runtime.tensor(np.zeros((64, 32), np.float32))
    main(tvm.runtime.tensor(a), tvm.runtime.tensor(b), result)
    product = a @ b
    expected = product[:, :32] * product[:, 32:] if kind == "gate" else product[:, ::2]
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)
