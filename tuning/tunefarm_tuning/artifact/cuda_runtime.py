"""Loads CUDA's libraries, which TVM's GPU part is linked with. If one is missing, TVM silently leaves that part out."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import sys
from pathlib import Path

RUNTIME, DRIVER = "libcudart.so.13", "libcuda.so.1"
_CURES = {RUNTIME: "pip install nvidia-cuda-runtime", DRIVER: "install NVIDIA's driver"}


def preload_cuda_runtime() -> None:
    """Load CUDA's runtime from the package ``nvidia-cuda-runtime`` if the system has none. Call it before TVM is imported.

    It does not start CUDA, and does nothing if the package is not installed.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        ctypes.CDLL(RUNTIME)
        return
    try:
        package = importlib.util.find_spec("nvidia")
    except ValueError:  # a module of that name was made by hand
        return
    for folder in (package.submodule_search_locations if package is not None else None) or ():
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(Path(folder, "cu13", "lib", RUNTIME)))
            return


def why_no_gpu() -> str:
    """Return why TVM finds no GPU here, with advice. Starts CUDA in this process."""
    errors = []
    for name, cure in _CURES.items():
        try:
            ctypes.CDLL(name)
        except OSError as error:
            errors.append(f"{error} ({cure})")
    if errors:
        return "; ".join(errors)
    runtime = ctypes.CDLL(RUNTIME)
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    count = ctypes.c_int(0)
    code = runtime.cudaGetDeviceCount(ctypes.byref(count))
    if code != 0:
        return f"CUDA says: {runtime.cudaGetErrorString(code).decode('utf-8', 'replace')}"
    if count.value == 0:
        return "CUDA finds no GPU"
    return "CUDA has one, but TVM was imported before CUDA's runtime could be found"
