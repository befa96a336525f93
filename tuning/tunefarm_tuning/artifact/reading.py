"""Reads artifacts for the engine: the loader's checks, with the engine's errors. Imports neither TVM nor numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.container import (
    ArtifactError,
    extract_library,
    manifest_in,
    open_zip,
    read_manifest,
    read_parts,
)
from tunefarm_tuning.core.errors import InvalidInputError

_ELF_MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def manifest_of(path: Path | str) -> dict[str, Any]:
    """Return an artifact's manifest.

    Raises:
        InvalidInputError: If the file is not an artifact; the code is the loader's.
    """
    try:
        return read_manifest(path)
    except ArtifactError as error:
        raise InvalidInputError(error.message, code=error.code) from error


def fetch_library(path: Path | str, output: Path) -> None:
    """Write an artifact's compiled library to a new file.

    Raises:
        InvalidInputError: If the artifact is damaged; the code is the loader's.
    """
    try:
        extract_library(path, output)
    except ArtifactError as error:
        raise InvalidInputError(error.message, code=error.code) from error


def fetch_parts(path: Path | str, folder: Path) -> list[Path]:
    """Write the ONNX models of the parts that ONNX Runtime runs to a folder; return their files, in order.

    Raises:
        InvalidInputError: If the artifact is damaged; the code is the loader's.
    """
    try:
        with open_zip(Path(path)) as archive:
            models = read_parts(archive, manifest_in(archive, Path(path)))
    except ArtifactError as error:
        raise InvalidInputError(error.message, code=error.code) from error
    files = [folder / f"part-{number}.onnx" for number in range(len(models))]
    for file, model in zip(files, models, strict=True):
        file.write_bytes(model)
    return files


def library_machine(path: Path) -> str | None:
    """Return the machine that a shared library is for, as `platform.machine` names it; None if unknown."""
    with path.open("rb") as file:
        header = file.read(20)
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return None
    return _ELF_MACHINES.get(int.from_bytes(header[18:20], "little" if header[5] == 1 else "big"))
