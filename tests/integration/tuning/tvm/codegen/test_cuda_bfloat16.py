"""Tensor cores for bfloat16 without a GPU: the kernels are those of float16, and become machine code.

What fragments hold, and which thread holds it, is the same for both types (PTX ISA); so a kernel that is float16's letter by
letter, but for the names of types, computes what float16's does.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from replayed_search import replayed_search

from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.target.toolchain import find_nvcc
from tunefarm_tuning.testing.workloads import sample_task

tvm = pytest.importorskip("tvm")

from tunefarm_tuning.tvm.base.serialization import module_from_text  # noqa: E402
from tunefarm_tuning.tvm.base.target import tvm_target  # noqa: E402
from tunefarm_tuning.tvm.space.design_space import DesignSpace  # noqa: E402

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="machine code for GPUs needs nvcc")

MATMUL: tuple[str, dict[str, int]] = ("matmul", {"n": 256})
CONV: tuple[str, dict[str, int]] = ("conv2d", {"size": 14, "channels": 64})
WMMA, MMA = 1, 2
INSTRUCTIONS = {
    WMMA: r"wmma\.mma\.sync\.aligned\.row\.(row|col)\.m16n16k16\.f32\.bf16\.bf16\.f32",
    MMA: r"mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.bf16\.bf16\.f32",
}
AS_FLOAT16 = {
    "nv_bfloat162": "half2",
    "nv_bfloat16": "half",
    ".bf16": ".f16",
    "__bfloat162float": "__half2float",
    "__float2bfloat16_rn": "__float2half_rn",
}


def design_space(workload: tuple[str, dict[str, int]], dtype: str, arch: int) -> DesignSpace:
    kind, size = workload
    task = sample_task(kind, **size, dtype=dtype, wide=1, target=f"cuda/sm_{arch}")
    return DesignSpace(module_from_text(task.workload.ir), task.target)


def source(space: DesignSpace, config: Config, arch: int) -> str:
    schedule, _ = space.apply(config)
    target = sample_task("softmax", n=64, target=f"cuda/sm_{arch}").target
    (module,) = tvm.tirx.build(schedule.mod, target=tvm_target(target)).imports
    return str(module.inspect_source("cuda"))


def kernel_of(text: str) -> str:
    """Return the kernel itself, without TVM's prelude, which differs by type."""
    return text[text.index('extern "C" __global__') :]


def legal_config(space: DesignSpace, config_space: ConfigSpace, tensor_cores: int) -> Config:
    """Return a config with these tensor cores that TVM accepts, and that unrolls nothing."""
    rows = config_space.sample_rows(np.random.default_rng(0), 256)
    for row in rows:
        tiling = config_space.gpu[row[0]]
        if tiling is None or tiling.tensor_cores != tensor_cores:
            continue
        row[tiling.unroll_column] = 0
        (config,) = config_space.configs(row[None])
        try:
            space.apply(config)
        except InvalidInputError:
            continue
        return config
    raise AssertionError(f"no config of {len(rows)} is legal")


@pytest.mark.matrix(every=6, each_value=False)
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    ("workload", "kinds"), [(MATMUL, (WMMA, MMA)), (CONV, (WMMA,))], ids=["matmul", "conv2d"]
)
def test_kernels_are_those_of_float16_in_the_other_type(
    workload: tuple[str, dict[str, int]], kinds: tuple[int, ...], arch: int
) -> None:
    narrow, half = design_space(workload, "bfloat16", arch), design_space(workload, "float16", arch)
    assert narrow.config_space.to_json() == half.config_space.to_json()
    assert {tiling.tensor_cores for tiling in narrow.config_space.gpu if tiling is not None} == {0, *kinds}
    for tensor_cores in (0, *kinds):
        config = legal_config(narrow, narrow.config_space, tensor_cores)
        code = kernel_of(source(narrow, config, arch))
        assert "nv_bfloat16" in code
        if tensor_cores == 0:
            assert "mma" not in code
            continue
        for own, other in AS_FLOAT16.items():
            code = code.replace(own, other)
        assert code == kernel_of(source(half, config, arch))


def test_tensor_cores_before_ampere_know_no_bfloat16() -> None:
    assert {
        tiling.tensor_cores for tiling in design_space(MATMUL, "float16", 75).config_space.gpu if tiling
    } == {
        0,
        1,
    }
    space = design_space(MATMUL, "bfloat16", 75).config_space
    assert all(tiling is None or tiling.tensor_cores == 0 for tiling in space.gpu)


def test_intrinsics_are_described_as_those_of_float16() -> None:
    """TVM matches loops by descriptions of intrinsics: float32 sums of bfloat16 products."""
    design_space(MATMUL, "bfloat16", 80)  # registers them
    from tvm.s_tir import TensorIntrin

    from tunefarm_tuning.tvm.base.tensor_intrinsics import mma_group, wmma_group

    for group in (wmma_group(transposed=False), wmma_group(transposed=True), mma_group()):
        for part in ("load_a", "load_b", "compute"):
            ours = TensorIntrin.get(group[part])
            tvms = TensorIntrin.get(group[part].replace("bf16", "f16"))
            for ported, wanted in ((ours.desc, tvms.desc), (ours.impl, tvms.impl)):
                assert "bfloat16" in ported.script()
                assert ported.script().replace("bfloat16", "float16") == wanted.script()


@pytest.mark.matrix(every=6, each_value=False)
@needs_nvcc
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(
    ("workload", "tensor_cores"),
    [(MATMUL, WMMA), (MATMUL, MMA), (CONV, WMMA)],
    ids=["matmul-wmma", "matmul-mma", "conv2d-wmma"],
)
def test_the_compiler_takes_them_for_products_of_bfloat16(
    workload: tuple[str, dict[str, int]], tensor_cores: int, arch: int, tmp_path: Path
) -> None:
    space = design_space(workload, "bfloat16", arch)
    config = legal_config(space, space.config_space, tensor_cores)
    path = tmp_path / "kernel.cu"
    path.write_text(source(space, config, arch))
    for form, output in (("-ptx", "kernel.ptx"), ("-cubin", "kernel.cubin")):
        command = [str(find_nvcc()), form, f"-arch=sm_{arch}", "-w", "-o", str(tmp_path / output), str(path)]
        subprocess.run(command, check=True)
    instructions = set(
        re.findall(r"(?<![.\w])(?:wmma\.)?mma\.sync[.\w]+", (tmp_path / "kernel.ptx").read_text())
    )
    assert instructions
    assert all(re.fullmatch(INSTRUCTIONS[tensor_cores], instruction) for instruction in instructions), (
        instructions
    )
    assert (tmp_path / "kernel.cubin").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.exhaustive
@needs_nvcc
def test_a_builder_builds_them(tmp_path: Path) -> None:
    from tunefarm_tuning.measure.interfaces import BuildInput

    kind, size = MATMUL
    task = sample_task(kind, **size, dtype="bfloat16", wide=1, target="cuda/sm_90")
    with LocalBuilder(workers=1, work_dir=tmp_path, timeout_sec=300, cache_bytes=0) as builder:
        space = builder.config_space(task)
        chosen = [
            legal_config(DesignSpace(module_from_text(task.workload.ir), task.target), space, kind)
            for kind in (WMMA, MMA)
        ]
        results = builder.build([BuildInput(task=task, config=config) for config in chosen])
    assert [result.failure for result in results] == [None, None]


@pytest.mark.exhaustive
def test_a_search_tries_them() -> None:
    kind, size = MATMUL
    task = sample_task(kind, **size, dtype="bfloat16", wide=1, target="cuda/sm_90")
    space = design_space(MATMUL, "bfloat16", 90).config_space
    result = replayed_search(task, space, trials=48)
    tried = np.array([space.row_of(record.config) for record in result.records])
    assert len(tried) == 48
    assert space.fits(tried).all()
    tilings = [space.gpu[row[0]] for row in tried]
    assert {tiling.tensor_cores for tiling in tilings if tiling is not None} == {0, WMMA, MMA}
    assert {record.workload_key for record in result.records} == {task.workload.key}
    assert [arg.dtype for arg in task.workload.args] == ["bfloat16"] * 3
