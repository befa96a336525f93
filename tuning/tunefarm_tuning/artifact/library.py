"""What a compiled library says about itself."""

from __future__ import annotations

from pathlib import Path

_ELF_MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def library_machine(path: Path) -> str | None:
    """Return which machine a shared library is for, as `platform.machine` names it; None if unknown."""
    with path.open("rb") as file:
        header = file.read(20)
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return None
    return _ELF_MACHINES.get(int.from_bytes(header[18:20], "little" if header[5] == 1 else "big"))
