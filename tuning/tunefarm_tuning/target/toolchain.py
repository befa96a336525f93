"""The compilers of this machine: TVM's version, and where nvcc is and which architectures it builds for.

Neither needs a GPU, and nothing here imports TVM.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError, NotFoundError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.target.gpu import plain_arch
from tunefarm_tuning.target.target import Target

_REPORTED = ("tunefarm", "apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "xgboost", "numpy")
_TVM = "tvm-"
_HOMES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_WHEEL = Path(sysconfig.get_path("purelib"), "nvidia", "cu13")
_USUAL = Path("/usr/local/cuda")
_TIMEOUT_SEC = 60.0


def find_nvcc() -> Path | None:
    """Return ``nvcc``; None without one.

    It is looked for on the PATH, in ``CUDA_HOME``, where NVIDIA's installer puts it, and among this environment's packages
    (``nvidia-cuda-nvcc``, which another package may have brought without the headers that it needs).
    """
    if (on_path := shutil.which("nvcc")) is not None:
        return Path(on_path)
    homes = [Path(os.environ[name]) for name in _HOMES if os.environ.get(name)]
    packaged = [_WHEEL] if (_WHEEL / "include" / "cccl").is_dir() else []
    for home in (*homes, _USUAL, *packaged):
        path = home / "bin" / "nvcc"
        if os.access(path, os.X_OK):
            return path
    return None


def check_can_build(target: Target) -> Path | None:
    """Return the compiler that kernels for a target need; None if they need none.

    The check is cheap and runs before a job is queued; otherwise every candidate would fail.

    Raises:
        InvalidInputError: ``no-cuda-compiler`` if there is no ``nvcc``; ``cuda-compiler-unfit`` if it is too old, or
            too new, for the target's architecture.
    """
    if target.kind != "cuda":
        return None
    nvcc = find_nvcc()
    if nvcc is None:
        raise InvalidInputError(
            "kernels for NVIDIA GPUs need nvcc, which this machine lacks: install the CUDA toolkit (no GPU "
            "is needed) or pip install nvidia-cuda-nvcc nvidia-cuda-cccl, or add its bin folder to the PATH",
            code="no-cuda-compiler",
        )
    arch = str(target.get("arch"))
    known = architectures(nvcc)
    if plain_arch(arch) not in known:
        raise InvalidInputError(
            f"the nvcc of this machine cannot build for {clean(arch, 20)}, only for {', '.join(known)}: "
            "install a CUDA toolkit that supports it",
            code="cuda-compiler-unfit",
            arch=clean(arch, 20),
            known=list(known),
        )
    return nvcc


@lru_cache(maxsize=8)
def architectures(nvcc: Path) -> tuple[str, ...]:
    """Return the architectures that a compiler builds for (``sm_80``), oldest first; the result is cached.

    Raises:
        InvalidInputError: ``no-cuda-compiler`` if it does not answer.
    """
    try:
        listed = subprocess.run(
            [str(nvcc), "--list-gpu-arch"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SEC,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _broken(nvcc, str(error)) from error
    numbers = sorted({int(number) for number in re.findall(r"\bcompute_(\d+)\b", listed.stdout)})
    if listed.returncode != 0 or not numbers:
        raise _broken(nvcc, listed.stderr or listed.stdout)
    return tuple(f"sm_{number}" for number in numbers)


def _broken(nvcc: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{nvcc.name} does not list its architectures: {clean(' '.join(why.split()), 200)}",
        code="no-cuda-compiler",
    )


@cache
def toolchain_key() -> str:
    """Return the compiler's part of a record's key: ``"tvm-0.27.0.post1"``.

    Raises:
        NotFoundError: If TVM is not installed here (code no-toolchain).
    """
    try:
        return f"{_TVM}{metadata.version('apache-tvm')}"
    except metadata.PackageNotFoundError as error:
        raise NotFoundError(
            "TVM is not installed here; install tunefarm with its extra: pip install 'tunefarm[engine]'",
            code="no-toolchain",
        ) from error


def tvm_version(toolchain: str) -> str | None:
    """Return the version of TVM in a `toolchain_key`; None if it is another compiler's key."""
    return toolchain.removeprefix(_TVM) if toolchain.startswith(_TVM) else None


def versions() -> dict[str, str]:
    """Return the versions of the packages that affect an artifact, by name, without those not installed."""
    versions_by_name = {"python": platform.python_version()}
    for package in _REPORTED:
        try:
            versions_by_name[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions_by_name
