"""Link object files into a shared library, with any linker of this machine."""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError, TransientError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.target.target import Target

_COMPILERS = ("cc", "gcc", "clang", "c++", "g++")
_SAME_MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}
_TIMEOUT_SEC = 120.0


def link(objects: Sequence[Path | str], output: Path | str, target: Target) -> None:
    """Link object files into the shared library `output`, for the target's host.

    Raises:
        InvalidInputError: If no linker for the target's machine is on the PATH; code ``"no-linker"``.
        TransientError: If the linker failed.
    """
    command = linker_command(target)
    linked = subprocess.run(
        [*command, "-shared", "-o", str(output), *map(str, objects)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_SEC,
        check=False,
    )
    if linked.returncode != 0:
        text = linked.stderr.decode("utf-8", "replace")
        raise TransientError(f"{command[0]} failed: {clean(text, 400)}", code="link-failed")


@functools.lru_cache(maxsize=32)
def linker_command(target: Target) -> tuple[str, ...]:
    """Return the linker command for the target's host; it takes the options that ``ld`` and ``cc`` share.

    Plain ``ld`` takes 2 ms against the 5 to 15 of a compiler driver; nothing that is linked needs the C library.

    Raises:
        InvalidInputError: If no linker is found; code ``"no-linker"``.
    """
    here = _machine(platform.machine())
    host = target if target.kind == "llvm" else target.get("host")
    triple = str(host.get("mtriple") or "") if isinstance(host, Target) else ""
    there = _machine(triple.partition("-")[0]) if triple else here
    if there == here:
        names: tuple[str, ...] = ("ld", *_COMPILERS)
    else:
        prefixes = (triple, f"{there}-linux-gnu")
        names = (*(f"{prefix}-{tool}" for prefix in prefixes for tool in ("gcc", "ld")), "ld.lld")
    for name in names:
        if (path := shutil.which(name)) is not None:
            return (path,)
    raise InvalidInputError(
        f"no linker for {there} is on the PATH: install one of {', '.join(dict.fromkeys(names))}",
        code="no-linker",
        machine=there,
    )


def _machine(name: str) -> str:
    return _SAME_MACHINE.get(name.lower(), name.lower())
