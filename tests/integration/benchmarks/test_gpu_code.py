"""The machine code of kernels for GPUs, without a GPU: none asks for more than its architecture has, and products use tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.gpu import code_child, code_run
from benchmarks.gpu.code_table import launch_of, table
from benchmarks.gpu.machine_code import find_nvdisasm

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.target.gpu import limits_of
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.toolchain import check_can_build, find_nvcc
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.tvm.base.serialization import module_from_text
from tunefarm_tuning.tvm.space.design_space import DesignSpace
from tunefarm_tuning.workload.task import TuningTask

pytest.importorskip("tvm")
pytestmark = pytest.mark.skipif(find_nvcc() is None, reason="building for CUDA needs nvcc")


def task_for(arch: str, kind: str, sizes: dict[str, Any]) -> TuningTask:
    try:
        check_can_build(parse_target(f"cuda/{arch}"))
    except InvalidInputError as error:
        pytest.skip(error.message)
    return sample_task(kind, **sizes, target=f"cuda/{arch}")


def params(task: TuningTask, folder: Path, **more: Any) -> dict[str, Any]:
    return {"ir": task.workload.ir, "target": task.target.to_json(), "folder": str(folder), **more}


@pytest.mark.matrix(every=3, each_value=False)
@pytest.mark.parametrize("arch", code_run.ARCHITECTURES)
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("conv2d", {"size": 14, "channels": 64}), ("matmul", {"n": 128, "dtype": "float16"})],
)
def test_default_schedules_can_be_launched_and_keep_their_sums_in_registers(
    kind: str, sizes: dict[str, Any], arch: str, tmp_path: Path
) -> None:
    (built,) = code_child.default(params(task_for(arch, kind, sizes), tmp_path))
    (launch,) = built["launches"]
    assert launch_of(launch).obstacle(limits_of(arch)) == ""
    assert 0 < launch["registers"] <= 255
    assert launch["stack_bytes"] == launch["spill_store_bytes"] == 0
    if find_nvdisasm() is not None:
        counts = launch["instructions"]
        assert counts["all"] > counts["float"] >= 0
        assert (counts["mma"] > 0) is (kind == "matmul")
        assert counts["spills"] == 0
    line = {"how": "default", "network": "n", "dtype": "d", "arch": arch, "kernel": "k", "calls": 2}
    text = table([{**line, "built": [built]}])
    assert f"| default | n | d | {arch} | 1 | 0 | 0 | 0 | 0 |" in text


@pytest.mark.exhaustive
def test_proposals_of_a_search_are_built_and_estimated(tmp_path: Path) -> None:
    task = task_for("sm_90", "matmul", {"n": 256, "dtype": "float16"})
    built = code_child.searched(params(task, tmp_path, count=2, seed=0))
    assert len(built) == 2
    for candidate in built:
        (launch,) = candidate["launches"]
        asked = launch_of(launch)
        assert asked.obstacle(limits_of("sm_90")) == ""
        estimate = candidate["estimate"]
        assert asked.threads_per_block == estimate["threads"]
        assert np.prod(asked.blocks) == estimate["blocks"]
        if find_nvdisasm() is not None:
            assert (launch["instructions"]["mma"] > 0) is (estimate["tensor_cores"] > 0)


@pytest.mark.exhaustive
def test_what_is_not_proposed_for_its_results_keeps_them_in_memory(tmp_path: Path) -> None:
    """The rule leaves out nothing that would fit: each config that has more results than registers has them in memory."""
    task = task_for("sm_80", "conv2d", {"size": 14, "channels": 64})
    space = DesignSpace(module_from_text(task.workload.ir), task.target)
    built = 0
    for config in left_out_for_registers(space.config_space):
        try:
            scheduled, _ = space.apply(config)
        except InvalidInputError:
            continue
        built += 1
        (launch,) = code_child.built(scheduled.mod, task.target, tmp_path)["launches"]
        assert launch["stack_bytes"] > 0, config
        if built == 3:
            return
    pytest.fail(f"of these configs, TVM scheduled {built}")


def left_out_for_registers(space: ConfigSpace) -> Iterator[Config]:
    """Yield configs that fit in all but their registers, and that are not unrolled, which takes `nvcc` long."""
    endless = {"registers_per_thread": 1 << 20, "registers_per_block": 1 << 30}
    without = [tiling and replace(tiling, device=replace(tiling.device, **endless)) for tiling in space.gpu]
    rows = space._draw(np.random.default_rng(0), 20_000)
    for number, (tiling, relaxed) in enumerate(zip(space.gpu, without, strict=True)):
        if tiling is None or relaxed is None:
            continue
        own, knobs = rows[rows[:, 0] == number], space.sketches[number].knobs
        own[:, tiling.unroll_column] = 0
        yield from space.configs(own[relaxed.fits(own, knobs) & ~tiling.fits(own, knobs)])
