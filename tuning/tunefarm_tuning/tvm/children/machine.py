"""Child process: describe this machine by LLVM and CUDA.

Handlers:

- `host_target`: {} -> this machine's CPU as a target, in the form of TVM's dicts.
- `look_for_gpu`: {} -> ``exists``: whether TVM can use a GPU; ``why``: why not, else empty.
"""

from __future__ import annotations

import platform
from collections.abc import Set
from typing import Any

import tvm
from tvm.target import Target, codegen

from tunefarm_tuning.artifact.cuda_runtime import why_no_gpu
from tunefarm_tuning.artifact.machine_check import KNOWN_CPU_FEATURES
from tunefarm_tuning.process import Handlers
from tunefarm_tuning.target.host import core_in_use, cpu_flags, num_cores

_CHECKED_FEATURES = ("avx", "fma", "f16c", "amx", "bmi", "gfni", "vaes", "vpclmulqdq")
"""Prefixes of vector features: a kernel crashes with SIGILL if LLVM assumes one that the machine lacks."""

_USED_ON_ARM = ("bf16", "dotprod", "fullfp16", "i8mm")
"""Features that kernels are made for: they are switched on if the system has them, whatever LLVM knows of the CPU."""
_TRIPLES = {
    "aarch64": "aarch64-linux-gnu",
    "arm64": "aarch64-linux-gnu",
    "armv7l": "armv7l-linux-gnueabihf",
    "riscv64": "riscv64-linux-gnu",
}


def host_target(_params: dict[str, Any]) -> dict[str, Any]:
    """Return this machine's CPU, its physical cores, and the features that are switched off."""
    cpu = core_in_use() or str(codegen.llvm_get_system_cpu())
    return described(platform.machine(), cpu, num_cores(), cpu_flags())


def described(machine: str, cpu: str, cores: int, flags: Set[str]) -> dict[str, Any]:
    """Return the target of a machine.

    Args:
        machine: Its architecture, as the system calls it. Only another one than x86 is part of the target: workers are x86 as
            a rule, and would build for themselves.
        cpu: LLVM's name of the CPU.
        cores: Its cores.
        flags: The CPU's features that the system has enabled, as Linux names them; empty if it does not say.
    """
    config: dict[str, Any] = {"kind": "llvm", "mcpu": cpu, "num-cores": cores}
    if triple := _TRIPLES.get(machine.lower()):
        config["mtriple"] = triple
        if cpu not in map(str, codegen.llvm_get_cpu_archlist(Target({"kind": "llvm", "mtriple": triple}))):
            config["mcpu"] = "generic"  # one that LLVM detects by a name that its list does not have
    differing = _arm_features if str(triple).startswith("aarch64") else _missing_features
    if flags and (features := differing(config, flags)):
        config["mattr"] = features
    return config


def look_for_gpu(_params: dict[str, Any]) -> dict[str, Any]:
    """Tell whether TVM can use a GPU of this machine."""
    exists = bool(tvm.cuda(0).exist)
    return {"exists": exists, "why": "" if exists else why_no_gpu()}


def _missing_features(config: dict[str, Any], flags: Set[str]) -> list[str]:
    """Return the features that LLVM assumes of a CPU and that the system, often a virtual machine, has switched off."""
    present = {_letters(flag) for flag in flags} | {"bmi"} & {
        _letters(flag).removesuffix("1") for flag in flags
    }
    return sorted(
        f"-{name}"
        for name in map(str, codegen.llvm_get_cpu_features(Target(config)))
        if name.startswith(_CHECKED_FEATURES) and _letters(name) not in present
    )


def _arm_features(config: dict[str, Any], flags: Set[str]) -> list[str]:
    """Return how a 64-bit Arm CPU differs from the one that LLVM knows by its name.

    One core is sold with and without parts: LLVM's Cortex-A72 has ``aes``, that of a Raspberry Pi 4 has not. Virtual machines
    hide others, and LLVM calls a CPU that is newer than itself ``generic``.
    """
    assumed = set(map(str, codegen.llvm_get_cpu_features(Target(config))))
    known = KNOWN_CPU_FEATURES
    missing = [f"-{name}" for name in assumed if name in known and known[name] not in flags]
    added = [f"+{name}" for name in _USED_ON_ARM if name not in assumed and known[name] in flags]
    return sorted(missing + added)


def _letters(name: str) -> str:
    """Return a feature's name without the punctuation in which LLVM and Linux differ."""
    return name.replace("_", "").replace("-", "").replace(".", "")


HANDLERS: Handlers = {"host_target": host_target, "look_for_gpu": look_for_gpu}
