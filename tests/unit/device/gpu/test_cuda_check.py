"""CUDA's libraries are found in packages, and reported where they are missing, before the device registers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tunefarm_tuning.artifact.cuda_runtime import RUNTIME
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.measure.gpu.nvml_recorded import ANSWERS
from tunefarm_workers.device.gpu.cuda_check import check_cuda

compiler = shutil.which("cc")
USE = f"""
import ctypes
from tunefarm_tuning.artifact.cuda_runtime import preload_cuda_runtime
preload_cuda_runtime()
ctypes.CDLL({RUNTIME!r})
"""


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU here")
def test_an_agent_does_not_offer_a_gpu_that_tvm_does_not_see() -> None:
    pytest.importorskip("tvm")
    with pytest.raises(InvalidInputError, match=r"TVM sees no GPU here: (lib\w+\.so|CUDA)") as caught:
        check_cuda(None, {})
    assert caught.value.code == "no-cuda"


def test_a_gpu_of_recorded_answers_is_not_looked_for(tmp_path: Path) -> None:
    check_cuda("GPU-0", {ANSWERS: str(tmp_path / "nvml.json")})


@pytest.mark.skipif(compiler is None or sys.platform != "linux", reason="needs a C compiler, and Linux")
def test_the_runtime_of_nvidias_package_is_found_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (tmp_path / "empty.c").write_text("")
    subprocess.run(
        [str(compiler), "-shared", f"-Wl,-soname,{RUNTIME}", "-o", str(folder / RUNTIME), "empty.c"],
        cwd=tmp_path,
        check=True,
    )
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    subprocess.run(
        [sys.executable, "-c", USE], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=True
    )
