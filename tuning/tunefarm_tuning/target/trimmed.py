"""A TVM without its compiler, as a device needs it: what the compiler knew of this machine's CPU is kept in its place.

The compiler is more than half of what a device installs, and only ever asked which CPU this is (`parse.detect_host_target`): kernels come
compiled, and run by TVM's runtime.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

from tunefarm_tuning.core.errors import UnknownTargetError
from tunefarm_tuning.core.output_file import output_file
from tunefarm_tuning.target.host import cpu_flags, host_cpu, num_cores
from tunefarm_tuning.target.target import Target

_COMPILER = Path("lib", "libtvm_compiler.so")
_KEPT = Path("lib", "tunefarm_host_target.json")
_SOURCES = "3rdparty"
"""Sources that code for GPUs is compiled with."""


def trim(tvm: Path, target: Target) -> int:
    """Remove the compiler from TVM's folder, and keep `target`, which it found; return the bytes that were removed."""
    kept = {"cpu": host_cpu(), "features": sorted(cpu_flags()), "target": target.to_json()}
    with output_file(tvm / _KEPT) as temporary:
        temporary.write_text(json.dumps(kept), encoding="utf-8")
    unneeded = [tvm / _COMPILER, *(tvm / _SOURCES).rglob("*")]
    removed = sum(path.lstat().st_size for path in unneeded if path.is_file())
    shutil.rmtree(tvm / _SOURCES, ignore_errors=True)
    (tvm / _COMPILER).unlink(missing_ok=True)
    return removed


def kept_target(tvm: Path | None) -> Target | None:
    """Return this machine's target as the compiler found it before it was removed; None if it is there to be asked.

    Args:
        tvm: As `tvm_folder` returns it.

    Raises:
        UnknownTargetError: If it was removed, and what was kept is of another machine, or lost.
    """
    if tvm is None or (tvm / _COMPILER).exists() or not (tvm / "lib").is_dir():
        return None
    try:
        kept = json.loads((tvm / _KEPT).read_text(encoding="utf-8"))
        # A newer kernel of the system may name more features.
        if kept["cpu"] == host_cpu() and cpu_flags() >= set(kept["features"]):
            return Target.from_json({**kept["target"], "num-cores": num_cores()})
    except (OSError, ValueError, TypeError, LookupError):
        pass  # as of another machine
    raise UnknownTargetError(
        "TVM's compiler was removed from this environment, and not on this machine as it is now: install apache-tvm again, or "
        "name the target"
    )


def tvm_folder() -> Path | None:
    """Return the folder of the installed TVM, which is not imported; None if there is none."""
    spec = find_spec("tvm")
    return next((Path(folder) for folder in (spec and spec.submodule_search_locations) or ()), None)
