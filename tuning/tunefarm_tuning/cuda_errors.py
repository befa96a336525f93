"""What CUDA's errors mean for the process that they happen in, and for the device."""

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


def poisons(text: str) -> bool:
    """Whether nothing can run any more on the GPU in the process that this error happened in."""
    return _POISONED.search(text) is not None


def is_devices_fault(text: str) -> bool:
    """Whether the GPU is to blame, whatever ran on it."""
    return _DEVICES_FAULT.search(text) is not None
