"""Design spaces are equal on all machines, and every config gives a correct kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from repository import ROOT

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.process import call_in_child
from tunefarm_tuning.space.config import Config, KnobKind
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.testing.workloads import sample_workload
from tunefarm_tuning.workload.task import Workload

tvm = pytest.importorskip("tvm")
tvm_ffi = pytest.importorskip("tvm_ffi")

CPU = Target.from_json({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
ONE_CORE = Target.from_json({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})
GPU = Target.from_json(
    {
        "kind": "cuda",
        "arch": "sm_90",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    }
)
MODULE = "tunefarm_tuning.tvm.children.build"
CONV = {"size": 14, "channels": 16}


def design_space(workload: Workload, target: Target = CPU) -> Any:
    from tunefarm_tuning.tvm.base.serialization import module_from_text
    from tunefarm_tuning.tvm.space.design_space import DesignSpace

    return DesignSpace(module_from_text(workload.ir), target)


def some_configs(space: ConfigSpace, n: int) -> list[Config]:
    return space.sample(np.random.default_rng(0), n)


def test_knobs_are_the_sampling_instructions() -> None:
    space = design_space(sample_workload("conv2d", **CONV)).config_space
    for sketch in space.sketches:
        tiles = [knob for knob in sketch.knobs if knob.kind is KnobKind.TILE]
        assert [(knob.extent, knob.parts) for knob in tiles] == [
            *((1, 4), (14, 4), (14, 4), (16, 4)),
            *((3, 2), (3, 2), (16, 2)),
        ]
        unroll = next(knob for knob in sketch.knobs if knob.kind is KnobKind.CATEGORICAL)
        assert unroll.values == (0, 16, 64, 512)
        location = next(knob for knob in sketch.knobs if knob.kind is KnobKind.LOCATION)
        assert set(location.values) >= {-2, -1}
        assert len(location.values) > 4


@pytest.mark.parametrize(
    ("cpu", "registers"), [("x86-64-v3", (32, 16)), ("x86-64-v4", (64, 32)), ("x86-64", (16, 16))]
)
def test_a_space_knows_the_registers_of_its_cpu(cpu: str, registers: tuple[int, int]) -> None:
    target = Target.from_json({"kind": "llvm", "mcpu": cpu, "num-cores": 2})
    computation = design_space(sample_workload("conv2d", **CONV), target).config_space.computation
    assert (computation.vector_bytes, computation.registers) == registers


@pytest.mark.exhaustive
def test_another_process_finds_the_same_space() -> None:
    workload = sample_workload("conv2d", **CONV)
    ours = design_space(workload).config_space
    from tunefarm_tuning.process import ChildProcess

    with ChildProcess(MODULE) as child:
        child.call("open_task", {"handle": "t", "ir": workload.ir, "target": CPU.to_json()}, timeout_sec=120)
        theirs = ConfigSpace.from_json(child.call("config_space", {"handle": "t"}, timeout_sec=120))
    assert theirs == ours
    assert theirs.key == ours.key


def test_a_workload_without_choices_has_one_config() -> None:
    space = design_space(sample_workload("relu", n=64)).config_space
    assert space.size == 1
    (only,) = space.sample(np.random.default_rng(0), 9)
    schedule, applied = design_space(sample_workload("relu", n=64)).apply(only)
    assert applied == only
    assert schedule.mod is not None


@pytest.mark.parametrize(
    ("n", "cores", "values", "shared"),
    [
        (64, 2, [(0,)], {0: False}),
        (1 << 14, 2, [(1, 0)], {0: True, 1: False}),
        (1 << 14, 64, [(1, 0)], {0: True, 1: False}),
        (1 << 23, 2, [], {}),
        (1 << 14, 1, [], {}),
    ],
)
def test_small_workloads_choose_whether_threads_share_them(
    n: int, cores: int, values: list[tuple[float, ...]], shared: dict[int, bool]
) -> None:
    target = Target.from_json({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": cores})
    space = design_space(sample_workload("relu", n=n), target)
    knobs = [knob for knob in space.config_space.sketches[0].knobs if knob.name == "threads"]
    assert [knob.values for knob in knobs] == values
    for decision, parallel in shared.items():
        schedule, applied = space.apply(Config(0, (decision,)))
        assert applied == Config(0, (decision,))
        assert ("T.parallel" in schedule.mod.script()) is parallel
    if values:
        with pytest.raises(InvalidInputError, match="threads cannot be 2"):
            space.apply(Config(0, (2,)))


def test_a_small_sum_is_right_with_and_without_threads() -> None:
    """The choice is the last knob, and no knob of the loops: a cost model takes the first category for unrolling."""
    space = design_space(sample_workload("conv2d", **CONV))
    for config in some_configs(space.config_space, 8):
        for decision in (0, 1):
            wanted = Config(config.sketch, (*config.decisions[:-1], decision))
            schedule, applied = space.apply(wanted)
            assert applied.decisions[-1] == decision
            assert ("T.parallel" in schedule.mod.script()) is (decision == 0)
    for sketch in space.config_space.sketches:
        assert sketch.knobs[-1].name == "threads"
        assert len(sketch.axes) == len(sketch.knobs)


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("kind", ["conv2d", "softmax"])
def test_what_is_applied_is_stable(kind: str) -> None:
    workload = sample_workload("conv2d", **CONV) if kind == "conv2d" else sample_workload("softmax", n=32)
    ours = design_space(workload)
    snapped = 0
    for config in some_configs(ours.config_space, 24):
        first, applied = ours.apply(config)
        second, again = ours.apply(applied)
        assert again == applied
        assert tvm_ffi.structural_equal(first.mod, second.mod)
        snapped += applied != config
    assert snapped > 0  # illegal compute locations, which is why decisions are read back


def test_kernels_keep_their_arguments_and_their_meaning() -> None:
    workload = sample_workload("conv2d", **CONV)
    ours = design_space(workload)
    from tunefarm_tuning.tvm.base.serialization import module_from_text

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(spec.shape).astype(spec.dtype) for spec in workload.args[:-1]]
    # The schedule is for a CPU that this machine may not be: run it on whatever it is.
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    original = module_from_text(workload.ir)
    expected = _run(original, target, arrays, workload)
    for config in some_configs(ours.config_space, 6):
        schedule, _ = ours.apply(config)
        for before, after in zip(original["main"].params, schedule.mod["main"].params, strict=True):
            assert tvm_ffi.structural_equal(before.ty, after.ty)
        np.testing.assert_allclose(
            _run(schedule.mod, target, arrays, workload), expected, rtol=1e-4, atol=1e-4
        )


def _run(mod: Any, target: Any, arrays: list[Any], workload: Workload) -> Any:
    library = tvm.driver.build(mod, target=target)
    args = [tvm.runtime.tensor(array) for array in arrays]
    out = workload.args[-1]
    result = tvm.runtime.empty(out.shape, out.dtype)
    library["main"](*args, result)
    return result.numpy()


@pytest.mark.parametrize(
    "config",
    [
        Config(99, ()),
        Config(-1, ()),
        Config(0, ()),
        Config(0, ((1, 1, 1, 64),) * 3 + (0,)),  # a tile too many parts
        Config(0, ((3, 1, 64, 1), (2, 16, 2, 1), (16, 4), 0)),  # factors of another extent
        Config(0, ((0, 1, 64, 1), (2, 16, 2, 1), (16, 4), 0)),
        Config(0, ((1, 1, 64, 1), (2, 16, 2, 1), (16, 4), 4)),  # no such category
        Config(0, ((1, 1, 64, 1), (2, 16, 2, 1), 0, 0)),
        Config(0, (0, (2, 16, 2, 1), (16, 4), 0)),
    ],
)
def test_a_config_that_does_not_fit_is_refused(config: Config) -> None:
    ours = design_space(sample_workload("matmul", n=64), ONE_CORE)
    ours.apply(Config(0, ((1, 1, 64, 1), (2, 16, 2, 1), (16, 4), 0)))
    with pytest.raises(InvalidInputError) as caught:
        ours.apply(config)
    assert caught.value.code == "config-does-not-apply"


def test_a_gpu_space_has_legal_and_illegal_configs() -> None:
    ours = design_space(sample_workload("matmul", n=64), GPU)
    applied, codes = [], set()
    space = ours.config_space
    for config in space.configs(space._draw(np.random.default_rng(0), 60)):  # whatever they ask for
        try:
            applied.append(ours.apply(config)[1])
        except InvalidInputError as error:
            codes.add(error.code)
    assert applied
    assert codes == {"config-does-not-apply"}  # too many threads, or too much shared memory
    assert all(ours.apply(config)[1] == config for config in applied)


def test_intrinsics_of_other_targets_are_not_imported() -> None:
    loaded = call_in_child(
        "intrinsics_probe",
        "loaded",
        {"ir": sample_workload("matmul", n=64).ir, "target": CPU.to_json()},
        timeout_sec=120,
        env={"PYTHONPATH": str(ROOT / "tests/integration/tuning/child_handlers")},
    )
    assert "tvm.s_tir.tensor_intrin.x86" in loaded
    assert "tvm.s_tir.tensor_intrin.cuda" not in loaded


GELU = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((128, 64), "float32"), w: T.Buffer((64, 128), "float32"), b: T.Buffer((128,), "float32"), y: T.Buffer((128, 128), "float32")):
    product = T.sblock_alloc_buffer((128, 128))
    biased = T.sblock_alloc_buffer((128, 128))
    for i, j, k in T.grid(128, 128, 64):
        with T.sblock("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                product[vi, vj] = T.float32(0)
            product[vi, vj] = product[vi, vj] + x[vi, vk] * w[vk, vj]
    for i, j in T.grid(128, 128):
        with T.sblock("biased"):
            vi, vj = T.axis.remap("SS", [i, j])
            biased[vi, vj] = product[vi, vj] + b[vj]
    for i, j in T.grid(128, 128):
        with T.sblock("result"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = biased[vi, vj] * (T.erf(biased[vi, vj] * T.float32(0.7)) + T.float32(1))
"""


@pytest.mark.matrix(every=2, each_value=False)
@pytest.mark.parametrize("name", ["gelu", "softmax"])
def test_a_candidate_for_a_gpu_is_one_kernel_where_it_can_be(name: str) -> None:
    """TVM's rules make two of a product whose sum is read twice, and up to three of a softmax."""
    from tunefarm_tuning.tvm.base.launches import launches_of, workspaces_of
    from tunefarm_tuning.tvm.base.target import tvm_target
    from tunefarm_tuning.tvm.space.design_space import DesignSpace

    if name == "gelu":
        space = DesignSpace(tvm.IRModule({"main": tvm.script.from_source(GELU, {"T": tvm.script.tirx})}), GPU)
    else:
        space = design_space(sample_workload("softmax", n=64), GPU)
    applied = 0
    for config in some_configs(space.config_space, 12):
        try:
            func = space.apply(config)[0].mod["main"]
        except InvalidInputError:
            continue
        assert workspaces_of(func) == []
        assert len(launches_of(func, tvm_target(GPU))) == 1
        applied += 1
    assert applied


def test_steps_that_would_make_their_readers_too_long_are_not_inlined() -> None:
    from tunefarm_tuning.tvm.space.cuda_space import with_steps_inlined

    def blocks(count: int) -> str:
        steps = [f"step{n}" for n in range(count)]
        lines = ["@T.prim_func(s_tir=True)"]
        lines.append('def main(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):')
        lines += [f"    {step} = T.sblock_alloc_buffer((8,))" for step in steps]
        for before, after in zip(["x", *steps], [*steps, "y"], strict=True):
            lines += ["    for i in range(8):", f'        with T.sblock("to_{after}"):']
            lines.append("            vi = T.axis.spatial(8, i)")
            lines.append(f"            {after}[vi] = T.max({before}[vi], {before}[vi] * T.float32(2))")
        return "\n".join(lines)

    short, long = (
        with_steps_inlined(tvm.IRModule({"main": tvm.script.from_source(blocks(n), {"T": tvm.script.tirx})}))
        for n in (2, 30)
    )
    assert str(short).count("T.sblock(") == 2, "the root and the result"
    assert 2 < str(long).count("T.sblock(") < 32
    assert len(str(long)) < 60_000
