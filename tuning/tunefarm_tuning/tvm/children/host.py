"""Child process: this machine as LLVM sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm.target import Target, codegen

from tunefarm_tuning.target.host import cpu_flags, num_cores

# The vector features whose absence makes a kernel for the named CPU die of SIGILL.
_WATCHED = ("avx", "fma", "f16c", "amx", "bmi", "gfni", "vaes", "vpclmulqdq")


def describe(_params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the host target in TVM's form."""
    cpu = str(codegen.llvm_get_system_cpu())
    config: dict[str, Any] = {"kind": "llvm", "mcpu": cpu, "num-cores": num_cores()}
    missing = _missing_features(cpu)
    if missing:
        config["mattr"] = missing
    return config


def _missing_features(cpu: str) -> list[str]:
    """Return what LLVM takes this CPU to have, and the system (a virtual machine, often) has switched off."""
    present = {_plain(flag) for flag in cpu_flags()} | {"bmi"} & {
        _plain(f).removesuffix("1") for f in cpu_flags()
    }
    if not present:
        return []
    assumed = codegen.llvm_get_cpu_features(Target({"kind": "llvm", "mcpu": cpu}))
    return sorted(
        f"-{name}" for name in map(str, assumed) if name.startswith(_WATCHED) and _plain(name) not in present
    )


def _plain(name: str) -> str:
    """Return a feature's name as LLVM and Linux would both spell it without their punctuation."""
    return name.replace("_", "").replace("-", "").replace(".", "")


HANDLERS: dict[str, Callable[[dict[str, Any]], Any]] = {"describe": describe}
