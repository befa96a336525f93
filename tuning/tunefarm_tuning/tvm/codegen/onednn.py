"""The object code through which kernels call oneDNN (``onednn.c``), compiled with this machine's C compiler."""

from __future__ import annotations

import hashlib
import platform
import secrets
import shutil
import subprocess
from pathlib import Path

from tunefarm_tuning.core.errors import TransientError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.target.target import Target

_SOURCE = Path(__file__).with_suffix(".c")
_COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_SEC = 60.0
_X86 = ("x86_64", "amd64")


def why_no_calls(target: Target) -> str:
    """Return a sentence that says why kernels for a target cannot call oneDNN; empty if they can: for an x86 CPU, with a C compiler."""
    machines = (str(target.get("mtriple") or platform.machine()).partition("-")[0], platform.machine())
    if target.kind != "llvm" or not all(machine.lower() in _X86 for machine in machines):
        return (
            "the target asks for -libs=dnnl, which is for x86 CPUs, compiled for on x86: all kernels are tunefarm's own "
            "(leave -libs out)"
        )
    if _compiler() is None:
        return (
            f"the target asks for -libs=dnnl, but the machine that compiles has no C compiler ({', '.join(_COMPILERS)}): all kernels "
            "are tunefarm's own (on the worker: apt-get install gcc)"
        )
    return ""


def onednn_object(folder: Path) -> Path:
    """Return the object; compile it unless `folder` has it.

    Raises:
        TransientError: If it cannot be compiled; code ``"compiler-failed"``.
    """
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:32]
    path = folder / f"onednn_{digest}.o"
    if path.exists():
        return path
    fresh = folder / f".{path.stem}-{secrets.token_hex(8)}.o"
    command = [_compiler() or _COMPILERS[0], "-O2", "-fPIC", "-c", str(_SOURCE), "-o", str(fresh)]
    try:
        compiled = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_SEC, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TransientError(
            f"{command[0]} took longer than {_TIMEOUT_SEC:.0f} s to compile {_SOURCE.name}",
            code="compiler-failed",
        ) from error
    if compiled.returncode != 0:
        text = compiled.stderr.decode("utf-8", "replace")
        raise TransientError(f"{command[0]} failed: {clean(text, 400)}", code="compiler-failed")
    fresh.replace(path)
    return path


def _compiler() -> str | None:
    return next((path for name in _COMPILERS if (path := shutil.which(name)) is not None), None)
