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


def can_call_onednn(target: Target) -> bool:
    """Return whether kernels for a target can call oneDNN: an x86 CPU like this machine's, which has a C compiler."""
    triple = str(target.get("mtriple") or platform.machine())
    x86 = ("x86_64", "amd64")
    is_x86 = triple.partition("-")[0].lower() in x86 and platform.machine().lower() in x86
    return target.kind == "llvm" and is_x86 and _compiler() is not None


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
    compiled = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_SEC, check=False
    )
    if compiled.returncode != 0:
        text = compiled.stderr.decode("utf-8", "replace")
        raise TransientError(f"{command[0]} failed: {clean(text, 400)}", code="compiler-failed")
    fresh.replace(path)
    return path


def _compiler() -> str | None:
    return next((path for name in _COMPILERS if (path := shutil.which(name)) is not None), None)
