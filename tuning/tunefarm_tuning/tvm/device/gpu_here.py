"""The GPU of this very process: it is asked how it is as one of a device is."""

from __future__ import annotations

import ctypes
import os
import uuid
from collections.abc import Mapping

import tvm

from tunefarm_tuning.artifact.cuda_runtime import DRIVER
from tunefarm_tuning.measure.gpu.nvml_recorded import open_nvml
from tunefarm_tuning.measure.gpu.state import GPU_STATE
from tunefarm_tuning.measure.gpu.users import state_and_users

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_UUID_LETTERS = len("GPU-") + 36


def offer() -> None:
    """Register what `DeviceSession.function` finds under `GPU_STATE`, unless there is no GPU.

    The driver is asked once: its first answer can take seconds.
    """
    gpu = first_gpu()
    if not gpu:
        return
    nvml = open_nvml()
    state_and_users(nvml, gpu)
    tvm.register_global_func(GPU_STATE, lambda: state_and_users(nvml, gpu), override=True)


def first_gpu(environment: Mapping[str, str] = os.environ) -> str:
    """Return the UUID (``GPU-...``) of CUDA's first GPU, which is TVM's too; empty where there is none.

    CUDA and NVML count GPUs in orders of their own. Starts CUDA in this process where the environment does not name one GPU.
    """
    visible = environment.get(_VISIBLE, "").split(",")[0].strip()
    if visible.startswith("GPU-") and len(visible) == _UUID_LETTERS:
        return visible
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return ""
    gpu, octets = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    # https://docs.nvidia.com/cuda/cuda-driver-api: each returns 0 where all is well.
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(gpu), 0) or driver.cuDeviceGetUuid(octets, gpu):
        return ""
    return f"GPU-{uuid.UUID(bytes=bytes(octets))}"
