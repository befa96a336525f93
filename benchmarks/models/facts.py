"""The machine and the package versions that a line was measured with."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

from benchmarks.search.machine import ROOT, machine_facts

from tunefarm_tuning.target.toolchain import versions


def package_versions() -> dict[str, str]:
    """Return the versions of the installed packages that are measured."""
    package_versions = dict(versions())
    for package in ("torch", "onnx2torch", "openvino", "ai-edge-litert"):
        try:
            package_versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return package_versions


def machine() -> dict[str, str]:
    """Return the CPU's name, the device model, the toolchain and the commit."""
    return machine_facts() | {"cpu": cpu_name(), "commit": commit()}


def cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    pairs = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == "model name"), "unknown")


def commit() -> str:
    """Return the commit of the repository, ``+`` where something was changed since; empty where that is not known."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
