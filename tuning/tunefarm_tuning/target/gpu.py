"""NVIDIA GPUs: the limits of each architecture, and the architecture and L2 cache behind each product name.

Source of the limits: the tables of "Compute Capabilities" in NVIDIA's CUDA C++ Programming Guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunefarm_tuning.target.target import Target

STATIC_SHARED_BYTES = 48 << 10
"""Shared memory that a kernel may declare; more has to be requested when the kernel is launched."""

WARP_SIZE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLimits:
    """Limits of a block and of a multiprocessor (SM).

    Attributes:
        shared_optin_bytes: Shared memory that one block can have if the kernel requests it at launch.
        shared_per_sm_bytes: Shared memory of one SM, for all its blocks.
        threads_per_sm: Threads that are resident on one SM.
        blocks_per_sm: Blocks that are resident on one SM.
    """

    shared_optin_bytes: int
    shared_per_sm_bytes: int
    threads_per_sm: int
    blocks_per_sm: int
    threads_per_block: int = 1024
    registers_per_block: int = 65536
    registers_per_sm: int = 65536
    registers_per_thread: int = 255


def _limits(
    optin_kib: int, sm_kib: int, threads: int, blocks: int, registers_of_block: int = 65536
) -> GpuLimits:
    return GpuLimits(
        shared_optin_bytes=optin_kib << 10,
        shared_per_sm_bytes=sm_kib << 10,
        threads_per_sm=threads,
        blocks_per_sm=blocks,
        registers_per_block=registers_of_block,
    )


_BY_NUMBER = {
    50: _limits(48, 64, 2048, 32),
    52: _limits(48, 96, 2048, 32),
    53: _limits(48, 64, 2048, 32, 32768),
    60: _limits(48, 64, 2048, 32),
    61: _limits(48, 96, 2048, 32),
    62: _limits(48, 64, 2048, 32, 32768),
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
    """Return the limits of an architecture (``sm_90``, ``sm_90a``); for unknown ones the limits that every architecture meets."""
    limits = _BY_NUMBER.get(number_of(arch))
    return limits if limits is not None else _limits(48, 64, 1024, 16)


def number_of(arch: str) -> int:
    """Return the number of an architecture: 90 for ``sm_90a``; 0 without one."""
    digits = plain_arch(arch).removeprefix("sm_")
    return int(digits) if digits.isdigit() else 0


def limits_of_target(target: Target) -> GpuLimits:
    """Return the limits of a CUDA target's architecture."""
    return limits_of(str(target.get("arch") or ""))


def target_limits(arch: str) -> dict[str, int]:
    """Return the limits of an architecture as attributes of a target, by TVM's names.

    Schedules read them. TVM does not know them on a machine without a GPU, so spaces would differ from machine to machine. Shared
    memory is what a kernel may declare; TVM has no name for more (see `GpuLimits.shared_optin_bytes`).
    """
    limits = limits_of(arch)
    return {
        "max_shared_memory_per_block": STATIC_SHARED_BYTES,
        "max_threads_per_block": limits.threads_per_block,
        "registers_per_block": limits.registers_per_block,
        "thread_warp_size": WARP_SIZE,
    }


_MIB = 1 << 20
# Architecture and MiB of L2 cache (0: it differs, or is not known for sure), by name without maker and brand.
_NAMED: dict[str, tuple[str, int]] = {
    "p100": ("sm_60", 4),
    "p4": ("sm_61", 2),
    "p40": ("sm_61", 3),
    "v100": ("sm_70", 6),
    "titan v": ("sm_70", 0),
    "gv100": ("sm_70", 6),
    "t4": ("sm_75", 4),
    "titan rtx": ("sm_75", 6),
    "a100": ("sm_80", 40),
    "a800": ("sm_80", 40),
    "a30": ("sm_80", 24),
    "a2": ("sm_86", 2),
    "a10": ("sm_86", 6),
    "a10g": ("sm_86", 6),
    "a16": ("sm_86", 0),
    "a40": ("sm_86", 6),
    "rtx a2000": ("sm_86", 0),
    "rtx a4000": ("sm_86", 4),
    "rtx a4500": ("sm_86", 6),
    "rtx a5000": ("sm_86", 6),
    "rtx a5500": ("sm_86", 6),
    "rtx a6000": ("sm_86", 6),
    "l4": ("sm_89", 48),
    "l20": ("sm_89", 96),
    "l40": ("sm_89", 96),
    "l40s": ("sm_89", 96),
    "h100": ("sm_90", 50),
    "h200": ("sm_90", 50),
    "h800": ("sm_90", 50),
    "h20": ("sm_90", 0),
    "gh200": ("sm_90", 50),
    "b100": ("sm_100", 0),
    "b200": ("sm_100", 126),
    "gb200": ("sm_100", 126),
    "b300": ("sm_103", 0),
    "gb300": ("sm_103", 0),
    "gb10": ("sm_121", 0),
    "rtx 3090": ("sm_86", 6),
    "rtx 3080": ("sm_86", 5),
    "rtx 4060": ("sm_89", 24),
    "rtx 4060 ti": ("sm_89", 32),
    "rtx 4070": ("sm_89", 36),
    "rtx 4070 ti": ("sm_89", 48),
    "rtx 4080": ("sm_89", 64),
    "rtx 4090": ("sm_89", 72),
    "rtx 5070": ("sm_120", 48),
    "rtx 5080": ("sm_120", 64),
    "rtx 5090": ("sm_120", 96),
}
_FAMILIES = (
    (re.compile(r"gtx 10[0-9]{2}"), "sm_61"),
    (re.compile(r"gtx 16[0-9]{2}"), "sm_75"),
    (re.compile(r"rtx 20[5-9]0"), "sm_75"),
    (re.compile(r"rtx 30[5-9]0"), "sm_86"),
    (re.compile(r"rtx 40[5-9]0"), "sm_89"),
    (re.compile(r"rtx 50[5-9]0"), "sm_120"),
    (re.compile(r"rtx [2456][05]00 ada"), "sm_89"),
    (re.compile(r"rtx pro [0-9]{4}"), "sm_120"),
    (re.compile(r"(jetson )?(agx )?orin"), "sm_87"),
    (re.compile(r"(jetson )?(agx )?xavier"), "sm_72"),
    (re.compile(r"(jetson )?(agx )?thor"), "sm_110"),
)
_MAKERS = {"nvidia", "geforce", "tesla", "quadro"}
# Words that can follow the model: form factors and memory sizes, and variants, some of which have another L2 cache.
_FORMS = re.compile(
    r"sxm[0-9]?|pcie|pg[0-9]+|nvl|hbm[0-9]e?|[0-9]+g[bi]?b?|tensor|core|gpu|graphics|device|480gb"
)
_VARIANTS = re.compile(
    r"ti|super|laptop|mobile|max|q|d|oem|mig|ada|generation|blackwell|server|workstation|edition|"
    r"nano|nx|developer|kit|dgx|spark|superchip"
)
_LOOKS_LIKE_GPU = re.compile(
    r"\b(nvidia|geforce|tesla|quadro|rtx|gtx|titan|jetson)\b|^[abhlptv][0-9]{1,4}[a-z]?\b"
)


def find_gpu(name: str) -> dict[str, Any] | None:
    """Return ``{"kind", "arch"}``, and ``"l2_cache_size_bytes"`` where it is known, for a GPU's name; None for any other text.

    People and drivers write names differently: ``h200``, ``nvidia/nvidia-h200``, ``NVIDIA GeForce RTX 4070 Ti SUPER``.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and word not in _MAKERS]
    for count in range(min(len(words), 4), 0, -1):
        model, suffixes = " ".join(words[:count]), words[count:]
        if not all(_FORMS.fullmatch(word) or _VARIANTS.fullmatch(word) for word in suffixes):
            continue
        arch, l2_mib = _NAMED.get(model, ("", 0))
        arch = arch or next((arch for pattern, arch in _FAMILIES if pattern.fullmatch(model)), "")
        if arch:
            exact = all(_FORMS.fullmatch(word) for word in suffixes)
            l2 = {"l2_cache_size_bytes": l2_mib * _MIB} if l2_mib and exact else {}
            return {"kind": "cuda", "arch": arch, **l2}
    return None


def looks_like_gpu(name: str) -> bool:
    """Return whether a text seems to name an NVIDIA GPU, known or not."""
    return _LOOKS_LIKE_GPU.search(name.lower()) is not None


def known_gpus() -> list[str]:
    """Return the known names, and the prefixes of known families."""
    return [*_NAMED, "rtx 20xx", "rtx 30xx", "rtx 40xx", "rtx 50xx", "rtx pro", "orin", "thor"]


def gpu_target(
    arch: str, *, name: str = "", attributes: Mapping[str, int] | None = None, machine: str = ""
) -> Target:
    """Return the target of a GPU that a driver describes.

    Args:
        arch: The architecture, ``sm_90``.
        name: The driver's name for it; it tells the L2 cache where the driver does not.
        attributes: The driver's facts, by TVM's names (``l2_cache_size_bytes``, ``registers_per_block``).
        machine: The computer's ``platform.machine()``. Any other than x86 becomes the target's ``host``, so that libraries
            are linked for it wherever they are built.
    """
    by_name = find_gpu(name) or {}
    cache = (
        {"l2_cache_size_bytes": by_name["l2_cache_size_bytes"]} if "l2_cache_size_bytes" in by_name else {}
    )
    host: dict[str, Any] = {}
    where = {"arm64": "aarch64"}.get(machine.lower(), machine.lower())
    if where and where not in ("x86_64", "amd64"):
        host = {"host": {"kind": "llvm", "mtriple": f"{where}-linux-gnu"}}
    return Target.from_json(
        {"kind": "cuda", "arch": arch, **target_limits(arch), **cache, **(attributes or {}), **host}
    )


def plain_arch(arch: str) -> str:
    """Return an architecture without its suffix: ``sm_90`` for ``sm_90a``."""
    return arch.rstrip("abcdefghijklmnopqrstuvwxyz") if arch.startswith("sm_") else arch
