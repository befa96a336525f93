"""What NVIDIA GPUs of an architecture can do: the limits that schedules and cost models ask for.

Source: the tables of "Compute Capabilities" in NVIDIA's CUDA C++ Programming Guide.
"""

from __future__ import annotations

from dataclasses import dataclass

from tunefarm_tuning.target.cuda_toolkit import plain_arch
from tunefarm_tuning.target.target import Target

STATIC_SHARED_BYTES = 48 << 10
"""Shared memory that a kernel may declare; beyond it, it has to be asked for when the kernel is launched."""

WARP_SIZE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLimits:
    """Limits of a block and of a multiprocessor (SM).

    Attributes:
        shared_optin_bytes: Shared memory that one block can have if the kernel asks for it at launch.
        shared_per_sm_bytes: What the blocks on one SM share.
    """

    shared_optin_bytes: int
    shared_per_sm_bytes: int
    threads_per_sm: int
    blocks_per_sm: int
    threads_per_block: int = 1024
    registers_per_block: int = 65536
    registers_per_sm: int = 65536
    registers_per_thread: int = 255


def _limits(optin_kib: int, sm_kib: int, threads: int, blocks: int) -> GpuLimits:
    return GpuLimits(
        shared_optin_bytes=optin_kib << 10,
        shared_per_sm_bytes=sm_kib << 10,
        threads_per_sm=threads,
        blocks_per_sm=blocks,
    )


_BY_NUMBER = {
    50: _limits(48, 64, 2048, 32),
    52: _limits(48, 96, 2048, 32),
    53: _limits(48, 64, 2048, 32),
    60: _limits(48, 64, 2048, 32),
    61: _limits(48, 96, 2048, 32),
    62: _limits(48, 64, 2048, 32),
    70: _limits(96, 96, 2048, 32),
    72: _limits(96, 96, 2048, 32),
    75: _limits(64, 64, 1024, 16),
    80: _limits(163, 164, 2048, 32),
    86: _limits(99, 100, 1536, 16),
    87: _limits(163, 164, 1536, 16),
    89: _limits(99, 100, 1536, 24),
    90: _limits(227, 228, 2048, 32),
    100: _limits(227, 228, 2048, 32),
    103: _limits(227, 228, 2048, 32),
    110: _limits(227, 228, 1536, 24),
    120: _limits(99, 100, 1536, 24),
    121: _limits(99, 100, 1536, 24),
}


def limits_of(arch: str) -> GpuLimits:
    """Return the limits of an architecture (``sm_90``, ``sm_90a``); of one that is not listed, those that any has."""
    found = _BY_NUMBER.get(number_of(arch))
    return found if found is not None else _limits(48, 64, 1024, 16)


def number_of(arch: str) -> int:
    """Return ``90`` of ``sm_90a``; 0 where there is none."""
    digits = plain_arch(arch).removeprefix("sm_")
    return int(digits) if digits.isdigit() else 0


def limits_of_target(target: Target) -> GpuLimits:
    """Return the limits of a CUDA target's architecture."""
    return limits_of(str(target.get("arch") or ""))


def target_limits(arch: str) -> dict[str, int]:
    """Return what a target of an architecture says of itself, by TVM's names.

    Schedules read it; without a GPU at hand TVM does not know it, and spaces would differ from machine to machine. Shared
    memory is what a kernel may declare: TVM has no name for more (see `GpuLimits.shared_optin_bytes`).
    """
    limits = limits_of(arch)
    return {
        "max_shared_memory_per_block": STATIC_SHARED_BYTES,
        "max_threads_per_block": limits.threads_per_block,
        "registers_per_block": limits.registers_per_block,
        "thread_warp_size": WARP_SIZE,
    }
