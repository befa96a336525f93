"""Reads the artifact's zip file, whose content is not trusted. Needs only Python 3.11.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

if __package__:
    from tunefarm_tuning.artifact.sizes import is_condition
else:  # beside this file, in the zip
    from tunefarm_sizes import is_condition  # type: ignore[import-not-found,no-redef]

FORMAT = "tunefarm-artifact"
FORMAT_VERSION = 1
"""The version of an artifact of one shape that is compiled whole, which every loader reads."""

SHAPES_FORMAT_VERSION = 2
"""The version of an artifact of several shapes, whose manifest has ``specialisations`` or ``other_shapes``, or with ``parts`` for
ONNX Runtime."""

_READ_VERSIONS = (FORMAT_VERSION, SHAPES_FORMAT_VERSION)
LIBRARY = "lib.so"
MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_MAX_DIMENSIONS = 32  # as many as numpy knows
_MAX_ELEMENTS = 1 << 33
_MAX_PARTS = 1000
_MAX_PART_BYTES = 1 << 31
_PART_FILE = re.compile(r"part_[1-9][0-9]{0,3}\.onnx")
_DTYPE = re.compile(r"bool|bfloat16|u?int(8|16|32|64)|float(16|32|64)")
# NotImplementedError (an unknown compression method) and RecursionError are RuntimeErrors.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, RuntimeError, struct.error)
PACKAGES = ("apache-tvm", "apache-tvm-ffi")


class ArtifactError(Exception):
    """The artifact cannot be used here. The message says why, and what to do.

    Attributes:
        code: Stable name of the problem: ``"not-an-artifact"``, ``"damaged-artifact"``, ``"format-too-new"``,
            ``"version-mismatch"``, ``"wrong-machine"``, ``"wrong-architecture"`` (of a GPU), ``"no-device"``,
            ``"no-onnxruntime"``, ``"run-failed"``; of one that is to be verified also ``"no-envelope"``, ``"bad-envelope"``,
            ``"unknown-key"``, ``"bad-signature"``, ``"wrong-predicate"``, ``"wrong-subject"``, ``"bad-verify-key"``,
            ``"not-installed"``, ``"cannot-verify-itself"``.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return an artifact's manifest; the library is not read.

    Raises:
        ArtifactError: If the file is not an artifact that this loader knows.
    """
    with open_zip(Path(path)) as archive:
        return manifest_in(archive, Path(path))


def extract_library(path: str | os.PathLike[str], output: str | os.PathLike[str]) -> dict[str, Any]:
    """Write an artifact's compiled library to `output`, checked against its SHA-256; return the manifest.

    Raises:
        ArtifactError: If the file is damaged or not an artifact.
    """
    with open_zip(Path(path)) as archive:
        manifest = manifest_in(archive, Path(path))
        unpack_library(archive, manifest, Path(output))
        return manifest


def open_zip(path: Path, file: IO[bytes] | None = None) -> zipfile.ZipFile:
    """Open an artifact's zip file.

    Args:
        path: The artifact.
        file: An open copy of it, to be read instead; `path` is named in errors.

    Raises:
        ArtifactError: If it does not exist, or is no zip file.
    """
    if file is None and not path.is_file():
        raise ArtifactError(f"{path} does not exist or is not a file", code="not-an-artifact")
    try:
        return zipfile.ZipFile(path if file is None else file)
    except _UNREADABLE as error:
        raise ArtifactError(f"{path} is not a tunefarm artifact: {error}", code="not-an-artifact") from error


def manifest_in(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    """Return the manifest of an open artifact; `path` is named in errors.

    Raises:
        ArtifactError: If it is missing, of another format version, or a field that the loader uses is malformed.
    """
    try:
        with archive.open(MANIFEST) as entry:
            manifest = json.loads(entry.read(_MAX_MANIFEST_BYTES))
    except KeyError as error:
        raise ArtifactError(f"{path} is not a tunefarm artifact: {error}", code="not-an-artifact") from error
    except _UNREADABLE as error:
        raise ArtifactError(
            f"{path}: the manifest cannot be read: {error}", code="damaged-artifact"
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArtifactError(f"{path} is not a tunefarm artifact", code="not-an-artifact")
    # Checked first: another format version may have other fields.
    version = manifest.get("format_version")
    if type(version) is int and version not in _READ_VERSIONS:
        raise ArtifactError(
            f"{path} has format version {version}, this loader reads {' and '.join(map(str, _READ_VERSIONS))}: "
            "use the loader.py inside it",
            code="format-too-new",
        )
    for field, is_right in _FIELDS.items():
        if not is_right(manifest.get(field)):
            raise ArtifactError(f"{path}: the manifest's {field!r} is invalid", code="damaged-artifact")
    parts = manifest.get("parts") or ()
    if not parts and not _are_specs(
        manifest["outputs"]
    ):  # only parts return tensors whose size depends on values
        raise ArtifactError(f"{path}: the manifest's 'outputs' is invalid", code="damaged-artifact")
    if not all(_is_entry(manifest["entries"], part["file"]) for part in parts):
        raise ArtifactError(f"{path}: the manifest's 'parts' are not in it", code="damaged-artifact")
    return manifest


def _is_text(value: object) -> bool:
    # A lone surrogate, which JSON can write but UTF-8 cannot, would fail wherever it is printed.
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_library(entries: Any) -> bool:
    return isinstance(entries, dict) and _is_entry(entries, LIBRARY)


def _is_entry(entries: Mapping[str, Any], name: str) -> bool:
    entry = entries.get(name)
    return isinstance(entry, dict) and _is_text(entry.get("sha256")) and type(entry.get("size_bytes")) is int


def _are_parts(parts: Any) -> bool:
    if parts is None:
        return True
    return (
        isinstance(parts, list)
        and len(parts) <= _MAX_PARTS
        and all(isinstance(part, dict) for part in parts)
        and all(isinstance(part.get("file"), str) and _PART_FILE.fullmatch(part["file"]) for part in parts)
    )


def _are_outputs(specs: Any) -> bool:
    """Return whether outputs are right; a dimension that depends on values is null."""
    if not isinstance(specs, list) or not all(isinstance(spec, dict) for spec in specs):
        return False
    shapes = [spec.get("shape") for spec in specs]
    known = [[1 if size is None else size for size in s] if isinstance(s, list) else s for s in shapes]
    return _are_specs([{**spec, "shape": shape} for spec, shape in zip(specs, known, strict=True)])


def _are_specs(specs: Any) -> bool:
    if not isinstance(specs, list) or not all(isinstance(spec, dict) for spec in specs):
        return False
    names = [spec.get("name") for spec in specs]
    return (
        all(map(_is_text, names))
        and len(set(names)) == len(names)
        and all(isinstance(spec.get("dtype"), str) and _DTYPE.fullmatch(spec["dtype"]) for spec in specs)
        and all(_is_shape(spec.get("shape")) for spec in specs)
    )


def _is_shape(shape: Any) -> bool:
    if not isinstance(shape, list) or not all(type(dim) is int and dim >= 0 for dim in shape):
        return False
    return len(shape) <= _MAX_DIMENSIONS and math.prod(shape) <= _MAX_ELEMENTS


def _are_specialisations(items: Any) -> bool:
    return items is None or (
        isinstance(items, list) and bool(items) and all(_is_specialisation(item, items[0]) for item in items)
    )


def _is_specialisation(item: Any, first: Any) -> bool:
    if not isinstance(item, dict) or not _is_text(item.get("entry")):
        return False
    if not all(
        _are_specs(item.get(field)) and _names(item[field]) == _names(first[field])
        for field in ("inputs", "outputs")
    ):
        return False
    batches, latency_sec = item.get("batches", []), item.get("latency_sec")
    return (
        isinstance(batches, list)
        and all(type(batch) is int and batch > 0 for batch in batches)
        and (not batches or all(spec["shape"] for field in ("inputs", "outputs") for spec in item[field]))
        and (latency_sec is None or (isinstance(latency_sec, int | float) and latency_sec > 0))
    )


def _are_other_shapes(section: Any) -> bool:
    try:
        dimensions = {item["name"]: item for item in section["dimensions"]}
        limits = [item[key] for item in dimensions.values() for key in ("least", "most")]
        inputs = [size for spec in section["inputs"] for size in spec["shape"]]
        outputs = [size for spec in section["outputs"] for size in spec["shape"]]
        names = [spec["name"] for spec in (*section["inputs"], *section["outputs"])]
        return (
            all(map(_is_text, [section["entry"], *dimensions, *names]))
            and all(type(item["multiple"]) is int and item["multiple"] > 0 for item in dimensions.values())
            and all(limit is None or type(limit) is int for limit in limits)
            and all(_is_size(size) or size in dimensions for size in inputs)
            and all(size is None or _is_size(size) for size in outputs)
            and all(is_condition(condition, dimensions) for condition in section.get("conditions", []))
            and (section["latency_sec"] is None or isinstance(section["latency_sec"], int | float))
        )
    except (KeyError, TypeError):
        return False


def _is_size(size: Any) -> bool:
    return type(size) is int and 0 < size <= _MAX_ELEMENTS


def _names(specs: list[dict[str, Any]]) -> list[str]:
    return [spec["name"] for spec in specs]


_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "format_version": lambda it: type(it) is int,
    "entries": _is_library,
    "inputs": _are_specs,
    "outputs": _are_outputs,
    "parts": _are_parts,
    "specialisations": _are_specialisations,
    "other_shapes": lambda it: it is None or _are_other_shapes(it),
    "target": lambda it: isinstance(it, dict) and _is_text(it.get("kind")),
    "target_key": _is_text,
    "versions": lambda it: (
        isinstance(it, dict) and all(it.get(name) is None or _is_text(it[name]) for name in PACKAGES)
    ),
    "libraries": lambda it: it is None or (isinstance(it, dict) and all(map(_is_text, it.values()))),
    "cpu_features": lambda it: it is None or (isinstance(it, list) and all(map(_is_text, it))),
    "machine": lambda it: it is None or _is_text(it),
    "threads": lambda it: it is None or (type(it) is int and it > 0),
    "unaligned_inputs": lambda it: it is None or type(it) is bool,
}
"""The fields of a manifest that the loader uses, each with its check."""


def unpack_library(archive: zipfile.ZipFile, manifest: Mapping[str, Any], output: Path) -> None:
    """Copy the library's entry to a file: at most as many bytes as the manifest says."""
    expected = manifest["entries"][LIBRARY]
    try:
        with archive.open(LIBRARY) as entry, output.open("xb") as file:
            digest, size = _copy(entry, file, expected["size_bytes"])  # type: ignore[arg-type]
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, RuntimeError) as error:
        raise ArtifactError(f"{LIBRARY} cannot be read: {error}", code="damaged-artifact") from error
    if size != expected["size_bytes"] or digest != expected["sha256"]:
        raise ArtifactError(
            f"{LIBRARY} does not match the manifest's SHA-256: get the artifact again",
            code="damaged-artifact",
        )


def read_parts(archive: zipfile.ZipFile, manifest: Mapping[str, Any]) -> list[bytes]:
    """Return the ONNX models of the parts that ONNX Runtime runs, each checked against its SHA-256.

    Raises:
        ArtifactError: damaged-artifact.
    """
    return [_read_entry(archive, manifest, part["file"]) for part in manifest.get("parts") or ()]


def _read_entry(archive: zipfile.ZipFile, manifest: Mapping[str, Any], name: str) -> bytes:
    expected = manifest["entries"][name]
    try:
        with archive.open(name) as entry:
            data = entry.read(min(expected["size_bytes"], _MAX_PART_BYTES) + 1)
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, RuntimeError, OSError) as error:
        raise ArtifactError(f"{name} cannot be read: {error}", code="damaged-artifact") from error
    if len(data) != expected["size_bytes"] or hashlib.sha256(data).hexdigest() != expected["sha256"]:
        raise ArtifactError(
            f"{name} does not match the manifest's SHA-256: get the artifact again", code="damaged-artifact"
        )
    return data


def _copy(source: BinaryIO, target: BinaryIO, limit: int) -> tuple[str, int]:
    hasher, size = hashlib.sha256(), 0
    while size <= limit and (chunk := source.read(_CHUNK_BYTES)):
        hasher.update(chunk)
        target.write(chunk)
        size += len(chunk)
    return hasher.hexdigest(), size
