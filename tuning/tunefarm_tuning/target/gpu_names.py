"""NVIDIA GPUs by the names that people and drivers give them: their architecture and, where it is known, their L2 cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tunefarm_tuning.target.gpu_architecture import target_limits
from tunefarm_tuning.target.target import Target

_MIB = 1 << 20

# Names without the maker's and the brand's, to architecture and MiB of L2 cache (0: differs, or not known for sure).
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
# What a name goes on with: how it is built in, how much memory it has. Some of these have another L2 cache.
_FORMS = re.compile(
    r"sxm[0-9]?|pcie|pg[0-9]+|nvl|hbm[0-9]e?|[0-9]+g[bi]?b?|tensor|core|gpu|graphics|device|480gb"
)
_VARIANTS = re.compile(
    r"ti|super|laptop|mobile|max|q|d|oem|mig|ada|generation|blackwell|server|workstation|edition|"
    r"nano|nx|developer|kit|dgx|spark|superchip"
)
_LOOKS_LIKE_ONE = re.compile(
    r"\b(nvidia|geforce|tesla|quadro|rtx|gtx|titan|jetson)\b|^[abhlptv][0-9]{1,4}[a-z]?\b"
)


def find_gpu(name: str) -> dict[str, Any] | None:
    """Return ``{"kind", "arch"}``, and ``"l2_cache_size_bytes"`` where it is known, of a GPU's name; None for any other text.

    Args:
        name: As a person says it or its driver: ``h200``, ``nvidia/nvidia-h200``, ``NVIDIA GeForce RTX 4070 Ti SUPER``.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and word not in _MAKERS]
    for count in range(min(len(words), 4), 0, -1):
        model, rest = " ".join(words[:count]), words[count:]
        if not all(_FORMS.fullmatch(word) or _VARIANTS.fullmatch(word) for word in rest):
            continue
        arch, l2_mib = _NAMED.get(model, ("", 0))
        arch = arch or next((arch for pattern, arch in _FAMILIES if pattern.fullmatch(model)), "")
        if arch:
            exact = all(_FORMS.fullmatch(word) for word in rest)
            l2 = {"l2_cache_size_bytes": l2_mib * _MIB} if l2_mib and exact else {}
            return {"kind": "cuda", "arch": arch, **l2}
    return None


def looks_like_gpu(name: str) -> bool:
    """Return whether a text seems to mean a GPU of NVIDIA's, known or not."""
    return _LOOKS_LIKE_ONE.search(name.lower()) is not None


def known_gpus() -> list[str]:
    """Return what names there are, families as what they begin with."""
    return [*_NAMED, "rtx 20xx", "rtx 30xx", "rtx 40xx", "rtx 50xx", "rtx pro", "orin", "thor"]


def gpu_target(
    arch: str, *, name: str = "", attributes: Mapping[str, int] | None = None, machine: str = ""
) -> Target:
    """Return the target of a GPU that a driver describes.

    Args:
        arch: ``sm_90``.
        name: As the driver gives it: what it does not tell is looked up by it.
        attributes: What the driver tells, by TVM's names (``l2_cache_size_bytes``, ``registers_per_block``).
        machine: Of the computer that it is in, as ``platform.machine()`` gives it. Another one than x86 becomes the target's
            ``host``: libraries are then linked for it wherever they are built.
    """
    by_name = find_gpu(name) or {}
    told = {"l2_cache_size_bytes": by_name["l2_cache_size_bytes"]} if "l2_cache_size_bytes" in by_name else {}
    host: dict[str, Any] = {}
    where = {"arm64": "aarch64"}.get(machine.lower(), machine.lower())
    if where and where not in ("x86_64", "amd64"):
        host = {"host": {"kind": "llvm", "mtriple": f"{where}-linux-gnu"}}
    return Target.from_json(
        {"kind": "cuda", "arch": arch, **target_limits(arch), **told, **(attributes or {}), **host}
    )
