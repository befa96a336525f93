"""Building kernels for NVIDIA GPUs without a GPU: machine code of the architecture, and no process left."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_nvcc import fake_nvcc
from replayed_search import replayed_search
from repository import ROOT
from waiting import wait_until

from tunefarm_tuning.core.errors import InvalidInputError, InvariantError
from tunefarm_tuning.core.outcome import Outcome
from tunefarm_tuning.measure.builder import LocalBuilder
from tunefarm_tuning.measure.builder import worker as build_worker
from tunefarm_tuning.measure.interfaces import BuildInput, BuildResult
from tunefarm_tuning.records.record import GPU_CODE
from tunefarm_tuning.space.config import Config
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.toolchain import find_nvcc
from tunefarm_tuning.testing.workloads import sample_task
from tunefarm_tuning.tvm.codegen.cuda_compile import compile_cuda
from tunefarm_tuning.workload.task import TuningTask

pytest.importorskip("tvm")

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="building for CUDA needs nvcc")
_MACHINE_CUDA = 190


def first_builds(builder: LocalBuilder, task: TuningTask, n: int, *, seed: int = 0) -> list[BuildResult]:
    configs = builder.config_space(task).sample(np.random.default_rng(seed), n)
    return builder.build([BuildInput(task=task, config=config) for config in configs])


def build_in(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Have children build with one of the modules in ``child_handlers``."""
    folder = ROOT / "tests/integration/tuning/child_handlers"
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{known}" if known else str(folder))
    monkeypatch.setattr(build_worker, "_MODULE", module)


def machine_codes(library: Path) -> list[int]:
    """Return for which architectures a library has machine code: ``90`` for sm_90."""
    data = library.read_bytes()
    codes = []
    start = data.find(b"\x7fELF", 1)
    while start >= 0:
        header = data[start : start + 64]
        if struct.unpack_from("<H", header, 18) == (_MACHINE_CUDA,):
            (flags,) = struct.unpack_from("<I", header, 48)
            # Since CUDA 13 (ABI version 8) the architecture is in the second byte, before in the first.
            codes.append(flags >> 8 & 0xFF if header[8] >= 8 else flags & 0xFF)
        start = data.find(b"\x7fELF", start + 1)
    return codes


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBuilder]:
    with LocalBuilder(
        workers=1, work_dir=tmp_path_factory.mktemp("cuda"), timeout_sec=300, cache_bytes=0
    ) as builder:
        yield builder


@needs_nvcc
@pytest.mark.parametrize(
    ("arch", "kind", "sizes"),
    [
        (80, "softmax", {"n": 64}),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                (90, "conv2d", {"size": 14, "channels": 16}),
                (80, "matmul", {"n": 128, "dtype": "float32"}),
                (80, "matmul", {"n": 128, "dtype": "float16"}),
                (90, "matmul", {"n": 128, "dtype": "float16"}),
            )
        ),
    ],
)
def test_a_library_holds_machine_code_of_its_architecture_and_no_source(
    builder: LocalBuilder, arch: int, kind: str, sizes: dict[str, int | str]
) -> None:
    task = sample_task(kind, **sizes, target=f"cuda/sm_{arch}")
    space = builder.config_space(task)
    cores = [0 if tiling is None else tiling.tensor_cores for tiling in space.gpu] or [0]
    # A kernel of each way to use the GPU: no tensor cores, wmma, mma.
    assert set(cores) == ({0, 1, 2} if sizes.get("dtype") == "float16" else {0})
    rows = space.sample_rows(np.random.default_rng(0), 64)
    for number, tiling in enumerate(space.gpu):
        if tiling is not None:
            rows[rows[:, 0] == number, tiling.unroll_column] = 0  # unrolled code takes nvcc long
    for wanted in set(cores):
        result: BuildResult | None = None
        chosen = [row for row in rows if (cores * len(space.sketches))[row[0]] == wanted]
        # A config that seems to fit may still be refused.
        for config in space.configs(np.array(chosen[:8])):
            (result,) = builder.build([BuildInput(task=task, config=config)])
            if result.failure is None:
                break
            assert result.failure.outcome in (Outcome.INSTANTIATION_ERROR, Outcome.RESOURCE_ERROR)
        assert result is not None
        assert result.artifact_path is not None
        assert machine_codes(result.artifact_path) == [arch]
        text = result.artifact_path.read_bytes()
        assert b"__global__" not in text
        assert b".target sm_" not in text


VECTORS = b"""
#include <cuda_fp16.h>
extern "C" __global__ void gathered(int a, unsigned int b, half* x, longlong4* r, ulonglong4* s, uint4* t, uint2* u, uint1* v) {
  *r = make_longlong4(a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7);
  *s = make_ulonglong4(b, b, b, b, b, b, b, b);
  *t = make_uint4(x[0], x[9], x[2], x[7], x[4], x[5], x[3], x[1]);
  *u = make_uint2(x[0], x[9], x[2], x[7]);
  *v = make_uint1(x[3], x[1]);
}
"""


@needs_nvcc
def test_vectors_of_narrow_elements_that_are_gathered_one_by_one_compile(tmp_path: Path) -> None:
    """TVM 0.27 writes them so; on an H200, 3 to 12 % of the candidates were lost."""
    code = compile_cuda(VECTORS, parse_target("cuda/sm_90"), tmp_path)
    assert [kernel.kernel for kernel in code.kernels] == ["gathered"]
    with pytest.raises(InvalidInputError, match=r"kernels.cu\(3\)"):
        compile_cuda(b"\n\nx", parse_target("cuda/sm_90"), tmp_path)


@needs_nvcc
def test_a_kernel_that_spills_is_no_candidate_and_others_tell_what_they_use(tmp_path: Path) -> None:
    task = sample_task("conv2d", size=14, channels=64, target="cuda/sm_80")

    def config(height: tuple[int, ...], channels: tuple[int, ...]) -> Config:
        tiles = ((1, 1, 1, 1, 1), height, (1, 1, 14, 1, 1), channels, (3, 1, 1), (3, 1, 1), (16, 4, 1))
        return Config(0, (*tiles, 0, 0, 0))

    few = config((14, 1, 1, 1, 1), (1, 1, 64, 1, 1))  # a thread's results: one
    many = config(
        (1, 1, 1, 14, 1), (1, 1, 4, 16, 1)
    )  # and 224, beside which it has no registers for what it multiplies
    with LocalBuilder(workers=1, work_dir=tmp_path, timeout_sec=300) as builder:
        space = builder.config_space(task)
        assert space.fits(np.array([space.row_of(few), space.row_of(many)])).all()
        fitting, spilling = builder.build([BuildInput(task=task, config=each) for each in (few, many)])
        again = builder.build([BuildInput(task=task, config=few)])[0]
    assert fitting.failure is None, fitting.failure
    code = fitting.facts[GPU_CODE]
    assert 16 <= code["registers"] <= 96
    assert code["spill_bytes"] == code["stack_bytes"] == 0
    assert code["shared_bytes"] > 0
    assert 0 < code["occupancy"] <= 1
    assert again.facts == fitting.facts, "the kernel came from the cache"
    assert again.build_sec == 0.0
    assert spilling.failure is not None
    assert spilling.failure.outcome is Outcome.RESOURCE_ERROR
    assert spilling.artifact_path is None
    assert "in registers" in spilling.failure.message or "spill registers" in spilling.failure.message
    assert spilling.facts[GPU_CODE]["stack_bytes"] > 64


@pytest.mark.exhaustive
@needs_nvcc
def test_where_tvm_has_a_cuda_runtime_it_still_leaves_the_compiling_to_nvcc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_in(monkeypatch, "gpu_machine_build")
    with LocalBuilder(workers=1, work_dir=tmp_path, timeout_sec=300, cache_bytes=0) as builder:
        (result,) = first_builds(builder, sample_task("softmax", n=64, target="cuda/sm_80"), 1)
        assert result.failure is None, result.failure
        assert result.artifact_path is not None
        assert machine_codes(result.artifact_path) == [80]


def test_what_tvm_compiled_itself_is_refused() -> None:
    from tunefarm_tuning.tvm.codegen.device_code import PackedModule, PackedModules

    form = struct.pack("<Q", 5) + b"cubin"
    with pytest.raises(InvariantError, match="TVM compiled it itself"):
        PackedModules(b"", (PackedModule("cuda", form),)).compiled([], bytes)


def test_the_search_for_a_gpu_runs_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvcc(tmp_path / "bin")  # a space needs no compiler, but the builder is asked whether it has one
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    task = sample_task("matmul", n=256, dtype="float32", target="cuda/sm_90")
    with LocalBuilder(workers=1, work_dir=tmp_path) as real:
        space = real.config_space(task)
    assert space.gpu
    result = replayed_search(task, space, trials=48)
    tried = np.array([space.row_of(record.config) for record in result.records])
    assert len(tried) == 48
    assert space.fits(tried).all()
    costs = [record.cost_sec for record in result.records]
    assert all(cost is not None for cost in costs)


def test_without_a_compiler_no_candidate_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = sample_task("softmax", n=64, target="cuda/sm_90")
    build_in(monkeypatch, "no_nvcc_build")
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
        monkeypatch.delenv(name, raising=False)
    with (
        LocalBuilder(workers=1, work_dir=tmp_path) as builder,
        pytest.raises(InvalidInputError, match="install the CUDA toolkit") as caught,
    ):
        builder.config_space(task)
    assert caught.value.code == "no-cuda-compiler"


def test_with_one_that_does_not_know_the_architecture_no_candidate_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvcc(tmp_path / "bin", architectures=("75",))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with (
        LocalBuilder(workers=1, work_dir=tmp_path) as builder,
        pytest.raises(InvalidInputError, match="cannot build for sm_90") as caught,
    ):
        builder.config_space(sample_task("softmax", n=64, target="cuda/sm_90"))
    assert caught.value.code == "cuda-compiler-unfit"


def test_what_the_compiler_says_is_the_candidates_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvcc(
        tmp_path / "bin", script="echo warning; echo 'kernels.cu(3): error: too much of it' >&2; exit 2"
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    task = sample_task("softmax", n=64, target="cuda/sm_90")
    with LocalBuilder(workers=1, work_dir=tmp_path, timeout_sec=300) as builder:
        (result,) = first_builds(builder, task, 1)
    assert result.failure is not None
    assert result.failure.outcome is Outcome.BUILD_ERROR
    assert result.failure.message == "nvcc: kernels.cu(3): error: too much of it"


def test_a_build_that_is_cut_off_leaves_no_compiler_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As nvcc does it: the work is a child's. It writes where its sandbox lets it, and no failure of a build deletes.
    note = "$TMPDIR/../../kernels/pid"
    fake_nvcc(tmp_path / "bin", script=f"sleep 100000 &\necho $! > {note}.new && mv {note}.new {note}\nwait")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    task = sample_task("softmax", n=64, target="cuda/sm_90")
    timeout_sec = 2.0
    with LocalBuilder(workers=1, work_dir=tmp_path, timeout_sec=timeout_sec) as builder:
        while not (
            notes := list(tmp_path.glob("*/kernels/pid"))
        ):  # the time was up before the compiler began: on a slow machine it takes more
            assert timeout_sec < 300
            builder._workers[0]._timeout_sec = timeout_sec
            (result,) = first_builds(builder, task, 1)
            assert result.failure is not None
            assert result.failure.outcome is Outcome.BUILD_TIMEOUT
            timeout_sec *= 2
        pid = int(notes[0].read_text())
        wait_until(lambda: not is_running(pid), "the compiler's child to end")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
