"""A stand-in for CUDA's compiler: it lists the architectures that it is given, and runs a script."""

from __future__ import annotations

from pathlib import Path


def fake_nvcc(folder: Path, *, architectures: tuple[str, ...] = ("90",), script: str = "exit 1") -> Path:
    """Write ``nvcc`` into a folder that is to be the first on the PATH.

    Args:
        folder: Made if it is not there.
        architectures: What ``--list-gpu-arch`` lists; nothing and a failure if empty.
        script: Lines of shell that are run for everything else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed = "\n".join(f"echo compute_{arch}" for arch in architectures) or "exit 1"
    path = folder / "nvcc"
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --list-gpu-arch ]; then\n{listed}\nexit 0\nfi\n{script}\n', encoding="utf-8"
    )
    path.chmod(0o755)
    return path
