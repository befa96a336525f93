"""A program in the place of ``nvidia-smi``, with the answers of machines that had GPUs."""

from __future__ import annotations

from pathlib import Path

# As driver 550.54.15 and 535.183.01 print them; the UUIDs are made up.
_DESCRIBED = {
    "H100": "NVIDIA H100 80GB HBM3, 9.0, 550.54.15, 81559",
    "A10": "NVIDIA A10, 8.6, 535.183.01, 23028",
    "GB10": "NVIDIA GB10, 12.1, 580.95.05, [N/A]",
    "odd": "Graphics Device, [N/A], 550.54.15, 1024",
}
_VITALS = ("41, 1980, 1980, 100, 70123", "42, 345, 1980, 7, 4", "[N/A], [N/A], [N/A], [N/A], [N/A]")
_DESCRIBING = "index,uuid,name,compute_cap,driver_version,memory.total"


class Driver:
    """Stands in `folder`; with no GPU until told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._program = folder / "nvidia-smi"

    def has(self, *kinds: str) -> None:
        """Let the machine have these GPUs."""
        cards = [f"{number}, {self.uuid(number)}, {_DESCRIBED[kind]}" for number, kind in enumerate(kinds)]
        asked_one = "\n".join(
            f"*--id={self.uuid(number)}*) echo '{_VITALS[number % len(_VITALS)]}';;"
            for number in range(len(kinds))
        )
        listed = "\n".join(cards)
        self._write(
            f'case "$*" in\n*--query-gpu={_DESCRIBING}\\ *) cat <<END\n{listed}\nEND\n;;\n{asked_one}\n'
            "*) echo 'No devices were found'; exit 6;;\nesac"
        )

    def fails(self) -> None:
        """Let it fail as it does where the kernel module and the library differ."""
        self._write("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")

    def freezes(self) -> None:
        """Let it not answer, until `thaws`."""
        self._write(
            f"printf x >> {self.folder}/asked; while ! test -e {self.folder}/thawed; do sleep 0.05; done"
        )

    def thaws(self) -> None:
        (self.folder / "thawed").touch()

    def says(self, text: str) -> None:
        self._write(f"cat <<END\n{text}\nEND")

    def uuid(self, number: int) -> str:
        return f"GPU-{number:08x}-1234-5678-9abc-def012345678"

    def _write(self, script: str) -> None:
        self._program.write_text(f"#!/bin/sh\n{script}\n")
        self._program.chmod(0o755)
