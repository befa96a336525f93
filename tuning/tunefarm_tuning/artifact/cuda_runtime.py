"""CUDA's libraries, which TVM's part for GPUs is linked with. Where one is missing, TVM leaves that part out without a word."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import sys
from pathlib import Path

RUNTIME, DRIVER = "libcudart.so.13", "libcuda.so.1"
_CURES = {RUNTIME: "pip install nvidia-cuda-runtime", DRIVER: "NVIDIA's driver brings it"}


def preload_cuda_runtime() -> None:
    """Load CUDA's runtime from ``nvidia-cuda-runtime`` where the system has none: before TVM is imported, which finds it then.

    Starts nothing. Where there is no such package it does nothing.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        ctypes.CDLL(RUNTIME)
        return
    try:
        package = importlib.util.find_spec("nvidia")
    except ValueError:  # somebody made a module of that name by hand
        return
    for folder in (package.submodule_search_locations if package is not None else None) or ():
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(Path(folder, "cu13", "lib", RUNTIME)))
            return


def why_no_gpu() -> str:
    """Return why TVM sees no GPU here, and what would help. Starts CUDA in this process."""
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
        return "CUDA counts no GPU"
    return "CUDA has one, but TVM was imported before CUDA's runtime could be found"
