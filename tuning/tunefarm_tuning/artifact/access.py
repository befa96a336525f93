"""Artifacts read by the engine: the loader's checks, with the engine's errors. Imports neither TVM nor numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunefarm_tuning.artifact.container import ArtifactError, extract_library, read_manifest
from tunefarm_tuning.core.errors import InvalidInputError


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
    """Write an artifact's compiled library to a file.

    Raises:
        InvalidInputError: If it is damaged.
    """
    try:
        extract_library(path, output)
    except ArtifactError as error:
        raise InvalidInputError(error.message, code=error.code) from error
