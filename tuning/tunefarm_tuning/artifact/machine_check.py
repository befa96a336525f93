"""Checks whether an artifact can run here: versions, machine, CPU features, GPU. Needs only Python 3.11.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

if __package__:
    from tunefarm_tuning.artifact.container import PACKAGES, ArtifactError
else:  # beside this file, in the zip
    from container import PACKAGES, ArtifactError  # type: ignore[import-not-found,no-redef]

_SAME_NAME = (
    "sse2 ssse3 popcnt movbe avx avx2 fma fma4 f16c xop bmi2 aes gfni vaes avx512f avx512dq avx512bw avx512vl avx512cd "
    "avx512er avx512ifma avx512vbmi i8mm bf16 sve sve2 sme mops cssc"
)
_OTHER_NAME = (
    "sse3=pni sse4.1=sse4_1 sse4.2=sse4_2 lzcnt=abm bmi=bmi1 avxvnni=avx_vnni avxifma=avx_ifma avxvnniint8=avx_vnni_int8 "
    "avx512vbmi2=avx512_vbmi2 avx512vnni=avx512_vnni avx512bf16=avx512_bf16 avx512fp16=avx512_fp16 "
    "avx512bitalg=avx512_bitalg avx512vpopcntdq=avx512_vpopcntdq amx-tile=amx_tile amx-int8=amx_int8 amx-bf16=amx_bf16 "
    "amx-fp16=amx_fp16 neon=asimd fullfp16=asimdhp dotprod=asimddp fp16fml=asimdfhm rdm=asimdrdm complxnum=fcma fptoint=frint "
    "jsconv=jscvt lse=atomics rcpc=lrcpc"
)
KNOWN_CPU_FEATURES: Mapping[str, str] = {
    **{name: name for name in _SAME_NAME.split()},
    **dict(pair.split("=") for pair in _OTHER_NAME.split()),
}
"""CPU features by LLVM's name: their names in /proc/cpuinfo. Only features that compilers use in loops are listed."""


def check_versions_of(manifest: Mapping[str, Any]) -> None:
    """Refuse an artifact that was made with other versions of TVM than are installed.

    Raises:
        ArtifactError: version-mismatch.
    """
    made_with = {name: manifest["versions"].get(name) for name in PACKAGES}
    wanted = " ".join(f"{name}=={version}" for name, version in made_with.items() if version)
    for name, version in made_with.items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise ArtifactError(
                f"{name} is not installed: pip install {wanted}", code="version-mismatch"
            ) from None
        if version is not None and installed != version:
            raise ArtifactError(
                f"the artifact was made with {name} {version}, but {installed} is installed: pip install {wanted}",
                code="version-mismatch",
            )


def check_machine_of(manifest: Mapping[str, Any], flags: frozenset[str] | None = None) -> None:
    """Refuse an artifact for another machine, or for CPU features that this CPU lacks: it would end in an illegal instruction.

    Args:
        manifest: The artifact's.
        flags: The CPU's features as Linux names them; by default this machine's.

    Raises:
        ArtifactError: wrong-machine.
    """
    machine = manifest.get("machine")
    if machine is not None and machine != platform.machine():
        raise ArtifactError(
            f"the artifact is for {machine}, this machine is {platform.machine()}", code="wrong-machine"
        )
    flags = cpu_flags() if flags is None else flags
    needed = manifest.get("cpu_features") or []
    missing = [
        name for name in needed if name in KNOWN_CPU_FEATURES and KNOWN_CPU_FEATURES[name] not in flags
    ]
    if flags and missing:
        raise ArtifactError(
            f"the artifact was compiled for {manifest['target_key']}; this CPU lacks {', '.join(missing)}. "
            "Compile the model for this machine",
            code="wrong-machine",
        )


def check_gpu_of(manifest: Mapping[str, Any], compute_version: str | None) -> None:
    """Refuse a GPU of another compute capability (``"9.0"``, None if unknown): it cannot run the artifact's machine code.

    Raises:
        ArtifactError: wrong-architecture.
    """
    target = manifest["target"]
    compiled = str(target.get("arch") or "")
    if target.get("kind") != "cuda" or not compiled or not compute_version:
        return
    here = f"sm_{compute_version.replace('.', '')}"
    if compiled.rstrip("abcdefghijklmnopqrstuvwxyz") != here:
        raise ArtifactError(
            f"the artifact is compiled for GPUs of {compiled} ({manifest['target_key']}); the GPU here is {here}. "
            f"Compile the model for cuda/{here}",
            code="wrong-architecture",
        )


def cpu_flags() -> frozenset[str]:
    """Return the CPU's features as Linux names them; empty if unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
