"""Tiles that leave a tail: right results for sizes that no tile divides, and unchanged spaces for other sizes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.space.config import Config, KnobKind
from tunefarm_tuning.target.target import Target

tvm = pytest.importorskip("tvm")

from tvm import te, topi  # noqa: E402

from tunefarm_tuning.tvm.default_schedules.cpu.loop_partitioning import SPLIT_TAILS  # noqa: E402
from tunefarm_tuning.tvm.kernels.weight_packing import split_off_packing, with_weights  # noqa: E402
from tunefarm_tuning.tvm.space.design_space import DesignSpace  # noqa: E402
from tunefarm_tuning.tvm.tasks.apply_record import apply_recorded  # noqa: E402

CPU = Target.from_json({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
GPU = Target.from_json(
    {
        "kind": "cuda",
        "arch": "sm_90",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    }
)


def tensor(name: str, *shape: int) -> Any:
    return te.placeholder(shape, "float32", name=name)


def module(tensors: list[Any], weight: int | None = None) -> Any:
    func = te.create_prim_func(tensors).with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    return tvm.IRModule({"main": func if weight is None else with_weights(func, [weight])})


def dense(rows: int, columns: int, *, weight: bool = True) -> Any:
    data, matrix, bias = tensor("data", rows, 24), tensor("matrix", 24, columns), tensor("bias", columns)
    out = topi.nn.relu(topi.add(topi.matmul(data, matrix), bias))
    return module([data, matrix, bias, out], 1 if weight else None)


def batch_matmul() -> Any:
    left, right = tensor("left", 3, 37, 8), tensor("right", 3, 8, 37)
    return module([left, right, topi.nn.batch_matmul(left, right, transpose_b=False)])


def conv2d() -> Any:
    data, matrix, bias = (
        tensor("data", 1, 9, 19, 8),
        tensor("matrix", 3, 3, 8, 29),
        tensor("bias", 1, 1, 1, 29),
    )
    out = topi.nn.relu(topi.add(topi.nn.conv2d_nhwc(data, matrix, 1, 1, 1), bias))
    return module([data, matrix, bias, out], 1)


def conv1x1() -> Any:
    data, matrix = tensor("data", 1, 7, 7, 86), tensor("matrix", 1, 1, 86, 86)
    return module([data, matrix, topi.nn.conv2d_nhwc(data, matrix, 1, 0, 1)], 1)


def configs_with_tails(space: DesignSpace, n: int) -> list[Config]:
    """Return configs with a tail in at least one tile; threads on and off."""
    with_tails = [
        config
        for config in space.config_space.sample(np.random.default_rng(1), 40)
        if space.leaves_tails(config)
    ]
    return random.Random(2).sample(with_tails, n)


def run(mod: Any, arrays: list[Any], shape: tuple[int, ...]) -> Any:
    # The schedule is for a CPU that this machine may not be: run it on whatever it is.
    with tvm.transform.PassContext(config=SPLIT_TAILS):
        library = tvm.tirx.build(mod, target=tvm.target.Target({"kind": "llvm", "num-cores": 2}))
    result = tvm.runtime.tensor(np.full(shape, np.nan, np.float32))
    library["main"](*(tvm.runtime.tensor(array) for array in arrays), result)
    return result.numpy()


@pytest.mark.matrix(every=6, each_value=False)
@pytest.mark.parametrize(
    "mod",
    [dense(37, 24), dense(24, 86), dense(37, 86, weight=False), batch_matmul(), conv2d(), conv1x1()],
    ids=["rows", "columns", "both", "batches", "conv2d", "conv1x1"],
)
def test_configs_with_tails_compute_the_same(mod: Any) -> None:
    space = DesignSpace(mod, CPU)
    shapes = [tuple(int(size) for size in param.ty.shape) for param in mod["main"].params]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes[:-1]]
    expected = run(mod, arrays, shapes[-1])
    shared = set()
    for config in configs_with_tails(space, 4):
        schedule, applied = space.apply(config)
        assert space.apply(applied)[1] == applied
        assert space.leaves_tails(applied)
        shared.add("T.parallel" in schedule.mod.script())
        np.testing.assert_allclose(run(schedule.mod, arrays, shapes[-1]), expected, rtol=1e-4, atol=1e-4)
    assert len(shared) == (2 if space.config_space.sketches[0].knobs[-1].name == "threads" else 1)


def test_weights_are_packed_where_no_tail_is_along_them() -> None:
    rows, columns = DesignSpace(dense(37, 64), CPU), DesignSpace(dense(24, 86), CPU)
    assert any(
        split_off_packing(rows.apply(config)[0].mod).packings for config in configs_with_tails(rows, 4)
    )
    for config in configs_with_tails(columns, 8):
        assert not split_off_packing(columns.apply(config)[0].mod).packings
    perfect = columns.config_space.sample(np.random.default_rng(1), 400)
    assert any(
        split_off_packing(columns.apply(config)[0].mod).packings
        for config in perfect
        if not columns.leaves_tails(config)
    )


def test_sums_and_sizes_that_tiles_divide_have_perfect_tiles_alone() -> None:
    for mod, sizes in ((dense(24, 64), set()), (dense(37, 64), {37}), (dense(24, 86), {86})):
        for sketch in DesignSpace(mod, CPU).config_space.sketches:
            tiles = [knob for knob in sketch.knobs if knob.kind is KnobKind.TILE]
            assert {knob.extent for knob in tiles if knob.tail_products} == sizes
    left, right = tensor("left", 24, 37), tensor("right", 37, 64)
    sum_over_a_prime = module([left, right, topi.matmul(left, right)])
    for sketch in DesignSpace(sum_over_a_prime, CPU).config_space.sketches:
        assert not any(knob.tail_products for knob in sketch.knobs)


def test_a_space_without_tails_keeps_its_old_key() -> None:
    """Records of the first release name it."""
    data, weight = te.placeholder((32, 64), "float32", "data"), te.placeholder((64, 96), "float32", "weight")
    target = Target.from_json({"kind": "llvm", "mcpu": "x86-64-v4", "num-cores": 1})
    space = DesignSpace(module([data, weight, topi.matmul(data, weight)]), target).config_space
    assert space.key == "2803cbf77474f447"


def test_gpus_have_perfect_tiles_alone() -> None:
    space = DesignSpace(dense(37, 86), GPU).config_space
    assert not any(knob.tail_products for sketch in space.sketches for knob in sketch.knobs)


def test_a_tile_that_the_knob_does_not_list_is_refused() -> None:
    space = DesignSpace(dense(37, 64), CPU)
    (config, *_) = configs_with_tails(space, 1)
    rows = next(
        position
        for position, knob in enumerate(space.config_space.sketches[config.sketch].knobs)
        if knob.extent == 37
    )
    knob = space.config_space.sketches[config.sketch].knobs[rows]
    assert 40 in knob.products
    no_tail, two_tails = (1, 1, 1, 40), (1, 2, 4, 5)
    for tile in ((1, 1, 1, 41), (1, 2, 1, 16), (0, 1, 5, 8), (40,), no_tail, two_tails):
        decisions = (*config.decisions[:rows], tile, *config.decisions[rows + 1 :])
        assert knob.find(tile) is None
        with pytest.raises(InvalidInputError, match="cannot be"):
            space.apply(Config(config.sketch, decisions))


def test_a_record_of_the_space_without_tails_is_refused_by_name() -> None:
    mod = dense(37, 64)
    space = DesignSpace(mod, CPU)
    (config, *_) = configs_with_tails(space, 1)
    _, applied = space.apply(config)
    apply_recorded(mod, CPU, applied, space.config_space.key)
    with pytest.raises(InvalidInputError) as caught:
        apply_recorded(mod, CPU, applied, "0" * 16)
    assert caught.value.code == "space-changed"
