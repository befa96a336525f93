"""CUDA's compiler: found, asked for its architectures, and reported as missing early."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_nvcc import fake_nvcc

from tunefarm_tuning import Budget, compile, tune  # noqa: A004
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.target import toolchain
from tunefarm_tuning.target.gpu import plain_arch
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.toolchain import (
    architectures,
    check_can_build,
    find_nvcc,
    toolchain_key,
    tvm_version,
    versions,
)
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.task import TuningTask, Workload


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without CUDA."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolchain, "_USUAL", tmp_path / "usual")
    monkeypatch.setattr(toolchain, "_WHEEL", tmp_path / "wheel")
    return tmp_path


def test_a_cpu_needs_no_compiler_of_cudas(nowhere: Path) -> None:
    assert find_nvcc() is None
    assert check_can_build(parse_target("llvm -mcpu=znver4")) is None


def test_without_the_compiler_the_error_says_what_to_install(nowhere: Path) -> None:
    with pytest.raises(InvalidInputError, match="install the CUDA toolkit") as caught:
        check_can_build(parse_target("cuda/sm_90"))
    assert caught.value.code == "no-cuda-compiler"


@pytest.mark.parametrize("folder", ["bin", "home/bin", "wheel/bin", "usual/bin"])
def test_it_is_found_where_it_may_be(nowhere: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("CUDA_HOME", str(nowhere / "home"))
    (nowhere / "wheel" / "include" / "cccl").mkdir(parents=True)
    nvcc = fake_nvcc(nowhere / folder)
    assert find_nvcc() == nvcc
    assert check_can_build(parse_target("cuda/sm_90")) == nvcc


def test_a_package_without_the_headers_that_it_needs_hides_no_other_one(nowhere: Path) -> None:
    fake_nvcc(nowhere / "wheel" / "bin")
    assert find_nvcc() is None
    usual = fake_nvcc(nowhere / "usual" / "bin")
    (nowhere / "wheel" / "include" / "cccl").mkdir(parents=True)
    assert find_nvcc() == usual


def test_one_that_does_not_know_the_architecture_is_named(nowhere: Path) -> None:
    nvcc = fake_nvcc(nowhere / "bin", architectures=("100", "80", "90"))
    assert architectures(nvcc) == ("sm_80", "sm_90", "sm_100")
    assert check_can_build(parse_target("cuda/sm_90a")) == nvcc
    with pytest.raises(InvalidInputError, match="sm_70, only for sm_80, sm_90, sm_100") as caught:
        check_can_build(parse_target("cuda/sm_70"))
    assert caught.value.code == "cuda-compiler-unfit"


def test_one_that_does_not_answer_is_none(nowhere: Path) -> None:
    fake_nvcc(nowhere / "bin", architectures=())
    with pytest.raises(InvalidInputError, match="does not list its architectures") as caught:
        check_can_build(parse_target("cuda/sm_90"))
    assert caught.value.code == "no-cuda-compiler"


def test_suffixes_are_of_the_same_architecture() -> None:
    assert [plain_arch(arch) for arch in ("sm_90a", "sm_100f", "sm_86")] == ["sm_90", "sm_100", "sm_86"]


def test_tuning_and_compiling_say_so_before_they_begin(nowhere: Path) -> None:
    target = parse_target("cuda/sm_90")
    task = TuningTask(
        workload=Workload(key="k", name="matmul", flops=2.0, args=(), ir=""), target=target, weight=1
    )
    model = Model(
        path=nowhere / "net.onnx",
        sha256="0" * 64,
        inputs=(),
        outputs=(),
        operators=(),
        opset=17,
        num_params=0,
    )
    with pytest.raises(InvalidInputError) as tuning:
        tune([task], budget=Budget(trials=1))
    with pytest.raises(InvalidInputError) as compiling:
        compile(model, target, output=nowhere / "net.tunefarm")
    assert tuning.value.code == compiling.value.code == "no-cuda-compiler"


def test_a_toolchains_key_tells_the_version_of_tvm() -> None:
    assert tvm_version(toolchain_key()) == versions()["apache-tvm"]
    assert tvm_version("replay-1") is None
