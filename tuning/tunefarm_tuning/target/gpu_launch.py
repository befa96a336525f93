"""What a GPU's kernel asks for, at its launch and by its machine code: whether the architecture can give it, and how much of an SM it fills.

Sources: the tables "Technical Specifications per Compute Capability" of NVIDIA's CUDA C++ Programming Guide, and the sheet "GPU
Data" of its CUDA Occupancy Calculator for the units of allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tunefarm_tuning.target.gpu import STATIC_SHARED_BYTES, WARP_SIZE, GpuLimits

MAX_BLOCKS = (2**31 - 1, 65535, 65535)
MAX_THREADS = (1024, 1024, 64)
_REGISTER_UNIT = 256  # registers of a warp are given in such portions
_WARP_UNIT = 4  # an SM has four schedulers, which divide its registers
_OWN_SHARED_BYTES = 1024  # of each block, for the system, from sm_80 on


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch of a kernel: blocks and threads by x, y and z, and a block's shared memory.

    Attributes:
        kernel: The kernel's name in the machine code.
        static_bytes: Shared memory that the kernel declares.
        dynamic_bytes: Shared memory that is requested at the launch.
    """

    kernel: str
    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]
    static_bytes: int = 0
    dynamic_bytes: int = 0

    @property
    def threads_per_block(self) -> int:
        """Threads of a block."""
        return prod(self.threads)

    @property
    def shared_bytes(self) -> int:
        """All shared memory of a block."""
        return self.static_bytes + self.dynamic_bytes

    def obstacle(self, limits: GpuLimits) -> str:
        """Return why an architecture cannot launch it, as a clause; empty if it can."""
        for what, asked, most in (
            ("blocks", self.blocks, MAX_BLOCKS),
            ("threads", self.threads, MAX_THREADS),
        ):
            for axis, number, limit in zip("xyz", asked, most, strict=True):
                if number > limit:
                    return f"it asks for {number} {what} along {axis}, of at most {limit}"
        for what, number, limit in (
            ("threads in a block", self.threads_per_block, limits.threads_per_block),
            ("bytes of declared shared memory", self.static_bytes, STATIC_SHARED_BYTES),
            ("bytes of shared memory", self.shared_bytes, limits.shared_optin_bytes),
        ):
            if number > limit:
                return f"it asks for {number} {what}, of at most {limit}"
        if self.dynamic_bytes < STATIC_SHARED_BYTES < self.shared_bytes:
            # TVM 0.27 (cuda_module.cc) raises the GPU's limit for a kernel only then.
            return (
                f"it needs {self.shared_bytes} bytes of shared memory: a launch has to request more than {STATIC_SHARED_BYTES} bytes, "
                f"but this launch requests {self.dynamic_bytes}"
            )
        return ""


_HARMLESS_BYTES = 64
"""Of a thread's memory: CUDA's functions for sines of large numbers and the like have tables there, and ``ptxas`` puts a register or
two of some kernels there that have many to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """The resources of one kernel's threads and blocks, as ``ptxas`` reports them.

    Attributes:
        registers: Registers of a thread.
        stack_bytes: Memory of a thread outside of its registers.
        spill_store_bytes: Bytes that a thread's code writes there for lack of registers, each instruction counted once.
        spill_load_bytes: Bytes that it reads back.
        static_bytes: Shared memory that the kernel declares.
    """

    kernel: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_bytes: int

    @property
    def spill_bytes(self) -> int:
        """Bytes that a thread's code writes and reads for lack of registers."""
        return self.spill_store_bytes + self.spill_load_bytes

    def obstacle(self) -> str:
        """Return what a thread keeps in memory for lack of registers, as a clause; empty if that is next to nothing."""
        if self.spill_bytes > _HARMLESS_BYTES:
            return (
                f"its threads spill registers: {self.spill_bytes} bytes, with {self.registers} registers each"
            )
        if self.stack_bytes > _HARMLESS_BYTES:
            return f"its threads keep {self.stack_bytes} bytes in memory that should be in registers"
        return ""


def registers_for(limits: GpuLimits, threads: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the registers that each thread of blocks of these sizes can have: what needs more keeps values in memory."""
    warps = np.ceil(threads / WARP_SIZE / _WARP_UNIT) * _WARP_UNIT
    of_a_warp = limits.registers_per_block / warps // _REGISTER_UNIT * _REGISTER_UNIT
    return np.minimum(of_a_warp / WARP_SIZE, limits.registers_per_thread)


def resident_blocks(limits: GpuLimits, *, threads: int, registers: int, shared_bytes: int) -> int:
    """Return how many blocks of a kernel one SM holds at a time.

    Args:
        limits: Of the architecture.
        threads: Threads of a block.
        registers: Registers of a thread, as the compiler reports them.
        shared_bytes: Shared memory of a block.
    """
    warps = ceil(threads / WARP_SIZE)
    of_a_warp = ceil(registers * WARP_SIZE / _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = limits.registers_per_sm // max(of_a_warp, 1) // _WARP_UNIT * _WARP_UNIT // warps
    # An SM has so much more than a block from sm_80 on; older ones have as much, or far more.
    reserved = limits.shared_per_sm_bytes - limits.shared_optin_bytes
    reserved = reserved if reserved == _OWN_SHARED_BYTES else 0
    by_shared = limits.shared_per_sm_bytes // max(shared_bytes + reserved, 1)
    by_threads = limits.threads_per_sm // WARP_SIZE // warps
    return min(by_registers, by_shared, by_threads, limits.blocks_per_sm)


def occupancy(limits: GpuLimits, *, threads: int, registers: int, shared_bytes: int) -> float:
    """Return the share of an SM's warps that are resident. Arguments as of `resident_blocks`."""
    blocks = resident_blocks(limits, threads=threads, registers=registers, shared_bytes=shared_bytes)
    return blocks * ceil(threads / WARP_SIZE) / (limits.threads_per_sm // WARP_SIZE)


def code_facts(
    limits: GpuLimits, launches: Sequence[Launch], kernels: Sequence[KernelResources]
) -> dict[str, Any]:
    """Return what a library's kernels use, for its record: the largest of each, and the least occupancy; empty without launches.

    Its key among a record's facts is `records.record.GPU_CODE`.
    """
    by_name = {kernel.kernel: kernel for kernel in kernels}
    pairs = [(launch, by_name[launch.kernel]) for launch in launches if launch.kernel in by_name]
    if not pairs:
        return {}
    return {
        "registers": max(kernel.registers for _, kernel in pairs),
        "spill_bytes": max(kernel.spill_bytes for _, kernel in pairs),
        "stack_bytes": max(kernel.stack_bytes for _, kernel in pairs),
        "shared_bytes": max(launch.shared_bytes for launch, _ in pairs),
        "occupancy": round(
            min(
                occupancy(
                    limits,
                    threads=launch.threads_per_block,
                    registers=kernel.registers,
                    shared_bytes=launch.shared_bytes,
                )
                for launch, kernel in pairs
            ),
            3,
        ),
    }
