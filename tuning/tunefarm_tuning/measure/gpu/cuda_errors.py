"""Classifies CUDA's errors: which end a process's use of the GPU, and which are the device's or its set-up's fault."""

from __future__ import annotations

import re

_POISONED = re.compile(
    "|".join(
        (
            # What the runtime says: https://docs.nvidia.com/cuda/cuda-runtime-api, the errors after which "the process must be
            # terminated and relaunched".
            "an illegal memory access was encountered",
            "the launch timed out and was terminated",
            "device-side assert triggered",
            "hardware stack error",
            "an illegal instruction was encountered",
            "misaligned address",
            "operation not supported on global/shared address space",
            "invalid program counter",
            "unspecified launch failure",
            "context is destroyed",
            "uncorrectable (?:ECC|NVLink) error",
            # What the driver calls them.
            "CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_TIMEOUT|ASSERT|HARDWARE_STACK_ERROR|ILLEGAL_INSTRUCTION)",
            "CUDA_ERROR_(?:MISALIGNED_ADDRESS|INVALID_ADDRESS_SPACE|INVALID_PC|LAUNCH_FAILED|CONTEXT_IS_DESTROYED)",
            "CUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE",
        )
    ),
    re.IGNORECASE,
)

_DEVICES_FAULT = re.compile(
    "|".join(
        (
            "uncorrectable (?:ECC|NVLink) error",
            "no CUDA-capable device is detected",
            "CUDA-capable device\\(s\\) is/are busy or unavailable",
            "GPU is lost",
            "CUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE",
            "CUDA_ERROR_(?:NO_DEVICE|DEVICE_UNAVAILABLE|DEVICE_NOT_LICENSED|SYSTEM_DRIVER_MISMATCH|SYSTEM_NOT_READY)",
        )
    ),
    re.IGNORECASE,
)

_SETUPS_FAULT = {
    "CUDA driver version is insufficient|CUDA_ERROR_INSUFFICIENT_DRIVER": (
        "the GPU's driver is older than the CUDA runtime here: install a newer driver"
    ),
    "CUDA driver is a stub library|CUDA_ERROR_STUB_LIBRARY": (
        "libcuda.so.1 is the CUDA toolkit's stub: put the driver's own library before it in the search path"
    ),
    "Device API cuda is not enabled|created using \\{cuda\\} but a loader of that name is not registered": (
        "TVM finds no CUDA there: libcuda.so.1, which the driver brings, or libcudart.so.13 (pip install nvidia-cuda-runtime) is "
        "missing"
    ),
    "no kernel image is available|CUDA_ERROR_NO_BINARY_FOR_GPU": (
        "the code was built for another GPU architecture: check the target"
    ),
}


def poisons(text: str) -> bool:
    """Return whether the process in which this error happened can no longer use the GPU."""
    return _POISONED.search(text) is not None


def is_devices_fault(text: str) -> bool:
    """Return whether the GPU or the set-up of its machine is to blame, not the kernel."""
    return _DEVICES_FAULT.search(text) is not None or setups_fault(text) is not None


def setups_fault(text: str) -> str | None:
    """Return what is wrong with the set-up if that is to blame (any other kernel would fail too); None if it is not."""
    for pattern, reason in _SETUPS_FAULT.items():
        if re.search(pattern, text, re.IGNORECASE):
            return reason
    return None
