"""Link object files into a shared library, with any linker of this machine."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError, TransientError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.target.target import Target

_COMPILERS = ("cc", "gcc", "clang", "c++", "g++")
_SAME_MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}
_VERSIONED_LLD = re.compile(r"ld\.lld-(\d+)")
_LINUX = "linux-gnu"
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

    Plain ``ld`` takes 2 ms against the 5 to 15 of a compiler driver; nothing that is linked needs the C library. So a linker
    for another machine needs none of that machine's libraries, while a compiler driver asks for them unless it is told not to.

    Raises:
        InvalidInputError: If no linker is found; code ``"no-linker"``.
    """
    this_machine = _machine(platform.machine())
    host = target if target.kind == "llvm" else target.get("host")
    triple = str(host.get("mtriple") or "") if isinstance(host, Target) else ""
    target_machine = _machine(triple.partition("-")[0]) if triple else this_machine
    if target_machine == this_machine:
        command = _first_of("ld", *_COMPILERS)
    else:
        prefixes = dict.fromkeys((triple, f"{target_machine}-{_LINUX}"))
        command = _first_of(*(f"{prefix}-ld" for prefix in prefixes), "ld.lld") or _versioned_lld() or _zig()
        if not command and (driver := _first_of(*(f"{prefix}-gcc" for prefix in prefixes))):
            command = (*driver, "-nostdlib")
    if command:
        return command
    advice = (
        f"install one of {', '.join(('ld', *_COMPILERS))}"
        if target_machine == this_machine
        else f"install the package binutils-{target_machine.replace('_', '-')}-{_LINUX} or lld, or pip install 'tunefarm[cross]'"
    )
    raise InvalidInputError(
        f"no linker for {clean(target_machine, 40)} is on the PATH: {clean(advice)}",
        code="no-linker",
        machine=target_machine,
    )


def missing_linker(target: Target) -> str:
    """Return what this machine lacks to link for a target, and the package to install; empty if it can."""
    try:
        linker_command(target)
    except InvalidInputError as error:
        return error.message
    return ""


def _first_of(*names: str) -> tuple[str, ...]:
    return next(((path,) for name in names if (path := shutil.which(name)) is not None), ())


def _versioned_lld() -> tuple[str, ...]:
    """Return the newest ``ld.lld-NN``, as Debian calls it; nothing without one."""
    versions: set[int] = set()
    for folder in os.get_exec_path():
        try:
            names = [path.name for path in Path(folder).iterdir()]
        except OSError:
            continue
        versions.update(int(match[1]) for name in names if (match := _VERSIONED_LLD.fullmatch(name)))
    return _first_of(*(f"ld.lld-{version}" for version in sorted(versions, reverse=True)))


def _zig() -> tuple[str, ...]:
    """Return LLD in the package ``ziglang`` (`tunefarm[cross]`); nothing if it is not installed."""
    spec = find_spec("ziglang")
    for folder in (spec and spec.submodule_search_locations) or ():
        if os.access(program := Path(folder, "zig"), os.X_OK):
            return str(program), "ld.lld"
    return ()


def _machine(name: str) -> str:
    return _SAME_MACHINE.get(name.lower(), name.lower())
