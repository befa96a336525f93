"""The C++ example, built with this system's compiler, computes what the Python loader computes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plain_artifacts import plain_artifact
from repository import EXAMPLES

from tunefarm_tuning.artifact.loader import extract_library, load

COMPILER = os.environ.get("CXX") or next(
    (name for name in ("c++", "g++", "clang++") if shutil.which(name)), None
)


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here (the C++ example needs one)")
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here (the C++ example needs it)")
def test_it_says_what_the_loader_says(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("examples_tiny_convnet", EXAMPLES / "tiny_convnet.py")
    assert spec is not None
    assert spec.loader is not None
    networks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(networks)
    artifact = plain_artifact(networks.build_tiny_mlp(batch=4), tmp_path / "net.tunefarm")
    extract_library(artifact, tmp_path / "lib.so")
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    x.tofile(tmp_path / "x.bin")
    makefile = EXAMPLES / "cpp" / "Makefile"
    build = run(
        "make", "-f", str(makefile), f"VPATH={makefile.parent}", f"PYTHON={sys.executable}", f"CXX={COMPILER}",
        "CXXFLAGS=-O0 -Wall -Werror", folder=tmp_path,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr
    done = run("./run_artifact", "lib.so", "x.bin", "4x64", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("output_0.bin: float32 [4, 10] ")
    output = np.fromfile(tmp_path / "output_0.bin", np.float32).reshape(4, 10)
    np.testing.assert_array_equal(output, load(artifact)(x)["y"])
    for arguments, code, message in (
        (["lib.so", "x.bin"], 2, "usage: "),
        (["lib.so", "x.bin", "4x65"], 1, "error: x.bin does not hold 1040 bytes"),
        (["lib.so", "x.bin", "8x32"], 1, "error: "),
        (["none.so", "x.bin", "4x64"], 1, "error: "),
    ):
        done = run("./run_artifact", *arguments, folder=tmp_path)
        assert (done.returncode, done.stderr.startswith(message)) == (code, True), done


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0"},
    )  # fmt: skip
