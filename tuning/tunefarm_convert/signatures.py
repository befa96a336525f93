"""Recognise a model file's format by its first bytes and its name, before any parser reads it."""

from __future__ import annotations

import mmap
import os
import re
import struct
from enum import StrEnum
from pathlib import Path

from tunefarm_tuning.core.errors import InvalidInputError, InvalidModelError

HEAD_BYTES = 4096
"""Number of bytes that `file_format` reads, unless it must find the module in a file of ``jax.export``."""

Buffer = bytes | mmap.mmap


class FileFormat(StrEnum):
    """A format of model files that tunefarm reads or converts."""

    ONNX = "onnx"
    TFLITE = "tflite"
    STABLEHLO = "stablehlo"  # MLIR's text or bytecode, or a file of jax.export
    TORCH_EXPORT = "torch-export"  # a ZIP archive, such as torch.export.save writes


_SUFFIXES = {
    ".tflite": FileFormat.TFLITE,
    ".mlir": FileFormat.STABLEHLO,
    ".mlirbc": FileFormat.STABLEHLO,
    ".stablehlo": FileFormat.STABLEHLO,
    ".jax_export": FileFormat.STABLEHLO,
    ".pt2": FileFormat.TORCH_EXPORT,
}

_GRAPH_FIELD = 7
_ONNX_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, _GRAPH_FIELD: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
"""Wire type of each field of ONNX's ModelProto, by its number."""
_ONNX_FIRST_BYTES = frozenset(
    tag & 0x7F | (0x80 if tag > 0x7F else 0)
    for tag in (number << 3 | wire for number, wire in _ONNX_FIELDS.items())
)
_IR_VERSION_FIELD = 1
_MAX_IR_VERSION = 100
"""ONNX has come to version 13: what says more than this is no ONNX file, whether it is cut off or not."""
_MAX_FIELDS = 100_000
"""Maximum number of fields of a ModelProto; a valid model has a dozen."""

_TFLITE_MAGIC = b"TFL3"
_TFLITE_MAX_ROOT = 1 << 20

_ZIP_MAGIC = b"PK\x03\x04"

_MLIR_BYTECODE = b"ML\xefR"
_PORTABLE = b"StableHLO_v"
# Text may begin with comments, and with any number of names of locations, attributes and types.
_MLIR_TEXT = re.compile(rb'(?:\s|//[^\n]*\n)*(?:module\b|func\.func\b|"builtin\.module"|[#!]\w+ = )')
_JAX_MODULE_FIELD = 30
"""Offset in the vtable of ``jax.export``'s root table where the module's field is given (versions 1 to 11)."""

_MLIR_HINT = "MLIR, such as StableHLO; tunefarm models convert net.mlir net.onnx makes ONNX of it"
_HINTS = (
    (_ZIP_MAGIC, "a zip archive, such as PyTorch writes; tunefarm models convert makes ONNX of a .pt2 file"),
    (b"\x80\x02", "a Python pickle, such as PyTorch writes; export the network with torch.onnx.export"),
    (b"\x80", "a Python pickle; export the network to ONNX"),
    (b"\x89HDF", "an HDF5 file, such as Keras writes; convert it with tf2onnx"),
    (b"\x1f\x8b", "gzip-compressed; unpack it first"),
    (b"\xfd7zXZ", "xz-compressed; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed; unpack it first"),
    (b"version https://git-lfs", "a Git LFS pointer, not the model; run: git lfs pull"),
    (b"GGUF", "a GGUF file; tunefarm reads ONNX and TFLite"),
    (b"\x7fELF", "a program or a library; tunefarm reads ONNX and TFLite"),
    (b"<", "a web page or XML; was the download a log-in page?"),
    (b"{", "JSON; tunefarm reads binary ONNX"),
)
"""Other well-known files by their first bytes, and what to do about them."""


def file_format(data: Buffer, suffix: str = "") -> FileFormat | None:
    """Return a file's format; None if it is unknown.

    Args:
        data: The file's first `HEAD_BYTES` or more. A file of ``jax.export`` is recognised only if all of it is there.
        suffix: How the file's name ends (``".mlir"``). It decides against ONNX only: a file that is named after a
            format and is not in it should be refused as such.
    """
    head = bytes(data[:HEAD_BYTES])
    named = _SUFFIXES.get(suffix.lower())
    # A flatbuffer's root is near its beginning. In an ONNX file whose producer's name begins with TFL3 the same bytes
    # give a root many megabytes away, because the last of them is the length of that name.
    is_flatbuffer = int.from_bytes(head[:4], "little") < _TFLITE_MAX_ROOT
    if named is FileFormat.TFLITE or (head[4:8] == _TFLITE_MAGIC and is_flatbuffer):
        return FileFormat.TFLITE
    if named is FileFormat.STABLEHLO or _is_mlir(head):
        return FileFormat.STABLEHLO
    if named is FileFormat.TORCH_EXPORT or head.startswith(_ZIP_MAGIC):
        return FileFormat.TORCH_EXPORT
    if _jax_module(data) is not None:
        return FileFormat.STABLEHLO
    return FileFormat.ONNX if head and head[0] in _ONNX_FIRST_BYTES else None


def file_format_of(path: Path) -> FileFormat | None:
    """Return a file's format by its bytes and its name; None if it is unknown.

    Raises:
        InvalidInputError: no-such-file.
    """
    try:
        with path.open("rb") as file:
            if not file.seek(0, os.SEEK_END):
                return file_format(b"", path.suffix)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return file_format(data, path.suffix)
    except OSError as error:
        raise InvalidInputError(
            f"the model file cannot be read: {error.strerror or error}", code="no-such-file"
        ) from error


def check_head(head: bytes) -> None:
    """Refuse a file whose first bytes are those of neither an ONNX nor a TFLite file.

    Raises:
        InvalidModelError: empty-file, not-protobuf.
    """
    if not head:
        raise _empty_file()
    if file_format(head) not in (FileFormat.ONNX, FileFormat.TFLITE):
        raise _not_a_model(head)


def check_file(path: Path) -> None:
    """Refuse a file that is plainly no model: by its first bytes, and one like ONNX by the lengths of its outermost fields.

    Raises:
        InvalidModelError: empty-file, truncated-model, not-protobuf.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        check_head(head)
        if file_format(head) is FileFormat.ONNX:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                check_onnx_bytes(data)


def check_onnx_bytes(data: Buffer) -> None:
    """Refuse bytes that cannot be a complete ONNX file.

    Walks the outermost fields by their lengths alone. This tells a file that was cut off from one that never was a
    model.

    Raises:
        InvalidModelError: empty-file, truncated-model, not-protobuf.
    """
    if not data:
        raise _empty_file()
    position = ir_version = 0
    for num_fields in range(_MAX_FIELDS):
        if position == len(data):
            return
        try:
            tag, position = _varint(data, position)
            number, wire = tag >> 3, tag & 7
            if _ONNX_FIELDS.get(number) != wire:
                raise _not_a_model(data)
            if wire == 0:
                value, position = _varint(data, position)
                ir_version = value if number == _IR_VERSION_FIELD else ir_version
            else:
                length, position = _varint(data, position)
                if length > len(data) - position:
                    raise _CutOff(length - (len(data) - position))
                position += length
        except _CutOff as cut:
            if not num_fields or ir_version > _MAX_IR_VERSION:
                raise _not_a_model(data) from None
            missing = f", {cut.missing_bytes:,} bytes or more are missing" if cut.missing_bytes else ""
            raise InvalidModelError(
                f"the model is cut off after {len(data):,} bytes{missing}; upload the whole file",
                code="truncated-model",
                size_bytes=len(data),
            ) from None
    raise _not_a_model(data)


def stablehlo_module(data: bytes) -> bytes:
    """Return the MLIR module in a StableHLO file, text or bytecode.

    Raises:
        InvalidModelError: not-stablehlo.
    """
    if _is_mlir(data[:HEAD_BYTES]):
        return data
    module = _jax_module(data)
    if module is None:
        raise InvalidModelError(
            "the file does not begin like StableHLO: neither like MLIR's text (module ...), nor like its bytecode, nor "
            "like a file of jax.export",
            code="not-stablehlo",
        )
    return data[module]


def is_portable(module: bytes) -> bool:
    """Return whether a module is bytecode that later versions of StableHLO promise to read."""
    return module.startswith(_MLIR_BYTECODE) and module[len(_MLIR_BYTECODE) :][1:].startswith(_PORTABLE)


class _CutOff(Exception):  # noqa: N818  (never leaves this module)
    def __init__(self, missing_bytes: int = 0) -> None:
        self.missing_bytes = missing_bytes


def _varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return protobuf's number at a position, and the next position."""
    value = 0
    for shift in range(0, 70, 7):
        if position == len(data):
            raise _CutOff
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _not_a_model(data)


_ZIP_NAME = 30
"""Where the name of a zip archive's first file begins."""


def _empty_file() -> InvalidModelError:
    return InvalidModelError("the file is empty", code="empty-file")


def _not_a_model(data: Buffer) -> InvalidModelError:
    head = data[:HEAD_BYTES]
    if _is_mlir(head) or _jax_module_field(head) is not None:
        hint: str | None = _MLIR_HINT
    elif head.startswith(b"PK") and head[_ZIP_NAME:].startswith(b"manifest.json"):
        hint = "an artifact that is compiled already: `tunefarm run` runs it, and a model is tuned from its own file"
    else:
        hint = next((hint for magic, hint in _HINTS if head.lstrip().startswith(magic)), None)
    return InvalidModelError(
        "this is not an ONNX file, nor a TFLite file: "
        + (f"it looks like {hint}" if hint else "its first bytes do not fit the format"),
        code="not-protobuf",
    )


def _is_mlir(head: bytes) -> bool:
    return head.startswith(_MLIR_BYTECODE) or _MLIR_TEXT.match(head) is not None


def _jax_module(data: Buffer) -> slice | None:
    """Return the position of the module in a complete file of ``jax.export``; None for any other file."""
    field = _jax_module_field(data)
    if field is None:
        return None
    try:
        (offset,) = struct.unpack_from("<I", data, field)
        start = field + offset
        (length,) = struct.unpack_from("<I", data, start)
    except struct.error:
        return None
    module = slice(start + 4, start + 4 + length)
    if module.stop > len(data) or data[module.start : module.start + len(_MLIR_BYTECODE)] != _MLIR_BYTECODE:
        return None
    return module


def _jax_module_field(data: Buffer) -> int | None:
    """Return the position of the offset of ``jax.export``'s module in a flatbuffer's root table; None without such a field."""
    try:
        (root,) = struct.unpack_from("<I", data, 0)
        (back,) = struct.unpack_from("<i", data, root)
        vtable = root - back
        if not 0 <= vtable < root:
            return None
        (size,) = struct.unpack_from("<H", data, vtable)
        if size < _JAX_MODULE_FIELD + 2:
            return None
        (field,) = struct.unpack_from("<H", data, vtable + _JAX_MODULE_FIELD)
    except struct.error:
        return None
    return root + int(field) if field else None
