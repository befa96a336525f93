"""The C++ example, built with this system's compiler, computes what the Python loader computes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from plain_artifacts import plain_artifact
from repository import EXAMPLES

from tunefarm_tuning import compile as compile_model
from tunefarm_tuning import import_model
from tunefarm_tuning.artifact.loader import extract_library, load

COMPILER = os.environ.get("CXX") or next(
    (name for name in ("c++", "g++", "clang++") if shutil.which(name)), None
)


needs_compiler = pytest.mark.skipif(
    COMPILER is None or shutil.which("make") is None,
    reason="there is no C++ compiler or no make here (the C++ example needs them)",
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    makefile = EXAMPLES / "cpp" / "Makefile"
    build = run(
        "make", "-f", str(makefile), f"VPATH={makefile.parent}", f"PYTHON={sys.executable}", f"CXX={COMPILER}",
        "CXXFLAGS=-O0 -Wall -Werror", folder=folder,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr
    return folder / "run_artifact"


@pytest.fixture(scope="module")
def networks() -> Any:
    spec = importlib.util.spec_from_file_location("examples_tiny_convnet", EXAMPLES / "tiny_convnet.py")
    assert spec is not None
    assert spec.loader is not None
    networks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(networks)
    return networks


@needs_compiler
def test_it_says_what_the_loader_says(program: Path, networks: Any, tmp_path: Path) -> None:
    artifact = plain_artifact(networks.build_tiny_mlp(batch=4), tmp_path / "net.tunefarm")
    extract_library(artifact, tmp_path / "lib.so")
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    x.tofile(tmp_path / "x.bin")
    done = run(program, "lib.so", "x.bin", "4x64", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("output_0.bin: float32 [4, 10] ")
    output = np.fromfile(tmp_path / "output_0.bin", np.float32).reshape(4, 10)
    np.testing.assert_array_equal(output, load(artifact)(x)["y"])
    for arguments, code, message in (
        (["lib.so", "x.bin"], 2, "usage: "),
        (["--entry", "main"], 2, "usage: "),
        (["lib.so", "x.bin", "4x65"], 1, "error: x.bin does not hold 1040 bytes"),
        (["lib.so", "x.bin", "8x32"], 1, "error: "),
        (["none.so", "x.bin", "4x64"], 1, "error: "),
        (["--entry", "main_9", "lib.so", "x.bin", "4x64"], 1, "error: the library has no entry main_9"),
    ):
        done = run(program, *arguments, folder=tmp_path)
        assert (done.returncode, done.stderr.startswith(message)) == (code, True), done


@needs_compiler
def test_it_calls_each_entry_of_an_artifact_of_several_shapes(
    program: Path, networks: Any, tmp_path: Path
) -> None:
    onnx.save(networks.build_tiny_mlp(batch="batch"), tmp_path / "net.onnx")
    model = import_model(tmp_path / "net.onnx", shapes={"x": "2|4,64"})
    artifact = compile_model(model, output=tmp_path / "net", baseline=False)
    extract_library(artifact.path, tmp_path / "lib.so")
    manifest = artifact.manifest
    entries = {item["inputs"][0]["shape"][0]: item["entry"] for item in manifest["specialisations"]}
    entries[7] = manifest["other_shapes"]["entry"]
    assert len(set(entries.values())) == 3
    for batch, entry in entries.items():
        x = np.random.default_rng(batch).standard_normal((batch, 64)).astype(np.float32)
        x.tofile(tmp_path / "x.bin")
        done = run(program, "--entry", entry, "lib.so", "x.bin", f"{batch}x64", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        output = np.fromfile(tmp_path / "output_0.bin", np.float32).reshape(batch, 10)
        np.testing.assert_allclose(output, load(artifact.path, threads=1)(x)["y"], rtol=1e-5, atol=1e-6)


def run(*command: Path | str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0"},
    )  # fmt: skip
