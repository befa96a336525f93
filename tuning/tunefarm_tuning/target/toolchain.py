"""Which versions of the compiler made a kernel."""

from __future__ import annotations

import platform
from importlib import metadata

from tunefarm_tuning.core.errors import NotFoundError

_REPORTED = ("tunefarm", "apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "xgboost", "numpy")


def toolchain_key() -> str:
    """Return the part of a record's key that says which compiler it holds for: ``"tvm-0.27.0.post1"``.

    Raises:
        NotFoundError: If TVM is not installed here (code no-toolchain).
    """
    try:
        return f"tvm-{metadata.version('apache-tvm')}"
    except metadata.PackageNotFoundError as error:
        raise NotFoundError(
            "TVM is not installed here; install tunefarm with its extra for this role: pip install 'tunefarm[engine]'",
            code="no-toolchain",
        ) from error


def versions() -> dict[str, str]:
    """Return the versions of what has a say in an artifact, by package; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in _REPORTED:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
