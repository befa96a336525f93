"""What a launch may ask for, and how much of an SM it fills: NVIDIA's tables, and examples of its occupancy calculator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tunefarm_tuning.target.gpu import GpuLimits, limits_of
from tunefarm_tuning.target.gpu_launch import (
    KernelResources,
    Launch,
    code_facts,
    occupancy,
    registers_for,
    resident_blocks,
)

PLAIN = Launch(kernel="main_kernel", blocks=(1, 1, 1), threads=(256, 1, 1))


@pytest.mark.parametrize(
    ("arch", "change", "obstacle"),
    [
        ("sm_80", {}, ""),
        ("sm_80", {"threads": (32, 32, 1)}, ""),
        ("sm_80", {"threads": (32, 33, 1)}, "it asks for 1056 threads in a block, of at most 1024"),
        ("sm_80", {"threads": (1, 1, 128)}, "it asks for 128 threads along z, of at most 64"),
        ("sm_80", {"blocks": (1 << 20, 65535, 1)}, ""),
        ("sm_80", {"blocks": (1, 65536, 1)}, "it asks for 65536 blocks along y, of at most 65535"),
        (
            "sm_80",
            {"static_bytes": 49153},
            "it asks for 49153 bytes of declared shared memory, of at most 49152",
        ),
        ("sm_75", {"dynamic_bytes": 64 << 10}, ""),
        ("sm_75", {"dynamic_bytes": 72 << 10}, "it asks for 73728 bytes of shared memory, of at most 65536"),
        ("sm_86", {"dynamic_bytes": 99 << 10}, ""),
        (
            "sm_86",
            {"dynamic_bytes": 99 << 10, "static_bytes": 4},
            "it asks for 101380 bytes of shared memory, of at most 101376",
        ),
        ("sm_80", {"dynamic_bytes": 163 << 10}, ""),
        ("sm_90", {"dynamic_bytes": 48 << 10, "static_bytes": 16 << 10}, ""),
        ("sm_90", {"dynamic_bytes": 32 << 10, "static_bytes": 16 << 10}, ""),
        (
            "sm_90",
            {"dynamic_bytes": 33280, "static_bytes": 24576},  # seen on an H200: CUDA_ERROR_INVALID_VALUE
            (
                "it needs 57856 bytes of shared memory: a launch has to request more than 49152 bytes, but this launch "
                "requests 33280"
            ),
        ),
        ("sm_90", {"dynamic_bytes": 227 << 10}, ""),
        (
            "sm_100",
            {"dynamic_bytes": 228 << 10},
            "it asks for 233472 bytes of shared memory, of at most 232448",
        ),
    ],
)
def test_a_launch_stays_within_the_architectures_table(
    arch: str, change: dict[str, object], obstacle: str
) -> None:
    assert replace(PLAIN, **change).obstacle(limits_of(arch)) == obstacle  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared_kib", "blocks"),
    [
        ("sm_80", 256, 32, 0, 8),  # 2,048 threads
        ("sm_86", 256, 32, 0, 6),  # 1,536
        ("sm_75", 256, 32, 0, 4),  # 1,024
        ("sm_80", 128, 255, 0, 2),  # eight warps of 8,192 registers
        ("sm_80", 256, 65, 0, 3),  # 65 registers are given as 72
        ("sm_80", 32, 16, 0, 32),
        ("sm_86", 32, 16, 0, 16),
        ("sm_80", 128, 32, 81, 2),  # a KiB more for each block
        ("sm_80", 128, 32, 82, 1),
        ("sm_75", 128, 32, 32, 2),
        ("sm_90", 128, 32, 227, 1),
        ("sm_90", 1024, 64, 0, 1),
    ],
)
def test_what_an_sm_holds(arch: str, threads: int, registers: int, shared_kib: int, blocks: int) -> None:
    limits = limits_of(arch)
    use = {"threads": threads, "registers": registers, "shared_bytes": shared_kib << 10}
    assert resident_blocks(limits, **use) == blocks
    assert occupancy(limits, **use) == blocks * threads / limits.threads_per_sm


def test_registers_that_are_left_for_each_thread() -> None:
    threads = np.array([1, 32, 256, 257, 384, 512, 768, 1024], dtype=np.float64)
    left = registers_for(limits_of("sm_90"), threads)
    np.testing.assert_array_equal(left, [255, 255, 255, 168, 168, 128, 80, 64])


def test_every_architectures_largest_block_can_be_launched() -> None:
    for number in (50, 61, 70, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121):
        limits: GpuLimits = limits_of(f"sm_{number}")
        largest = replace(
            PLAIN, threads=(limits.threads_per_block, 1, 1), dynamic_bytes=limits.shared_optin_bytes
        )
        assert largest.obstacle(limits) == ""
        fitting = resident_blocks(limits, threads=1024, registers=32, shared_bytes=limits.shared_optin_bytes)
        assert fitting == (2 if number == 61 else 1)  # 96 KiB of an SM, 48 of a block


def resources(**facts: int) -> KernelResources:
    plain = {
        "registers": 64,
        "stack_bytes": 0,
        "spill_store_bytes": 0,
        "spill_load_bytes": 0,
        "static_bytes": 0,
    }
    return KernelResources(kernel="main_kernel", **{**plain, **facts})


@pytest.mark.parametrize(
    ("facts", "obstacle"),
    [
        ({}, ""),
        ({"registers": 255}, ""),
        ({"stack_bytes": 40}, ""),  # a sine
        ({"stack_bytes": 8, "spill_store_bytes": 8, "spill_load_bytes": 8}, ""),
        (
            {"registers": 255, "stack_bytes": 48, "spill_store_bytes": 60, "spill_load_bytes": 120},
            "its threads spill registers: 180 bytes, with 255 registers each",
        ),
        ({"stack_bytes": 560}, "its threads keep 560 bytes in memory that should be in registers"),
    ],
)
def test_kernels_that_keep_results_in_memory_are_told(facts: dict[str, int], obstacle: str) -> None:
    assert resources(**facts).obstacle() == obstacle


def test_the_facts_of_a_library_are_the_worst_of_its_kernels() -> None:
    second = replace(PLAIN, kernel="main_kernel_1", threads=(1024, 1, 1), dynamic_bytes=2048)
    kernels = [resources(spill_store_bytes=4), replace(resources(registers=128), kernel="main_kernel_1")]
    facts = code_facts(limits_of("sm_80"), [PLAIN, second], kernels)
    assert facts == {
        "registers": 128,
        "spill_bytes": 4,
        "stack_bytes": 0,
        "shared_bytes": 2048,
        "occupancy": 0.0,  # 128 registers for each of 1024 threads are too many
    }
    assert code_facts(limits_of("sm_80"), [PLAIN], kernels)["occupancy"] == 0.5
    assert code_facts(limits_of("sm_80"), [], kernels) == {}
