"""What a StableHLO file's bytes say before MLIR sees them: text, a portable artifact, or a file of ``jax.export``."""

from __future__ import annotations

import mmap
import re
import struct

from tunefarm_tuning.core.errors import InvalidModelError

HEAD_BYTES = 4096
"""Of a file, for `is_stablehlo`."""

Buffer = bytes | mmap.mmap

_BYTECODE = b"ML\xefR"
_PORTABLE = b"StableHLO_v"
_SUFFIXES = (".mlir", ".mlirbc", ".stablehlo", ".jax_export")
# Text may begin with comments, and with names of locations, attributes and types, which may be many.
_TEXT = re.compile(rb'(?:\s|//[^\n]*\n)*(?:module\b|func\.func\b|"builtin\.module"|[#!]\w+ = )')
_MODULE_FIELD = 30
"""Of the root table of ``jax.export``'s flatbuffer: where its vtable says where the module is (versions 1 to 11)."""


def is_stablehlo(head: bytes, suffix: str) -> bool:
    """Tell by a file's first bytes whether it is MLIR; one that is called so and is not, shall be told so."""
    return head.startswith(_BYTECODE) or _TEXT.match(head) is not None or suffix.lower() in _SUFFIXES


def module_bytes(data: bytes) -> bytes:
    """Return the module that a file holds, text or bytecode.

    Raises:
        InvalidModelError: not-stablehlo.
    """
    if data.startswith(_BYTECODE) or _TEXT.match(data[:HEAD_BYTES]):
        return data
    place = _in_jax_export(data)
    if place is None:
        raise InvalidModelError(
            "the file does not begin like StableHLO: neither like MLIR's text (module ...), nor like its bytecode, nor "
            "like a file of jax.export",
            code="not-stablehlo",
        )
    return data[place]


def is_portable(module: bytes) -> bool:
    """Tell whether a module is bytecode that StableHLO promises to read in later versions."""
    return module.startswith(_BYTECODE) and module[len(_BYTECODE) :][1:].startswith(_PORTABLE)


def is_jax_export(data: Buffer) -> bool:
    """Tell whether a file is what ``jax.export.Exported.serialize`` returned; all of it must be there."""
    return _in_jax_export(data) is not None


def begins_like_mlir(head: bytes) -> bool:
    """Tell by a file's first bytes, whatever its name, whether it is MLIR, or may be what ``jax.export`` writes."""
    return is_stablehlo(head, "") or _module_field(head) is not None


def _in_jax_export(data: Buffer) -> slice | None:
    """Return where the module is in a file of ``jax.export``; None where there is none."""
    field = _module_field(data)
    if field is None:
        return None
    try:
        (offset,) = struct.unpack_from("<I", data, field)
        start = field + offset
        (length,) = struct.unpack_from("<I", data, start)
    except struct.error:
        return None
    whole = slice(start + 4, start + 4 + length)
    if whole.stop > len(data) or data[whole.start : whole.start + len(_BYTECODE)] != _BYTECODE:
        return None
    return whole


def _module_field(data: Buffer) -> int | None:
    """Return where a flatbuffer's root table says where ``jax.export``'s module is; None where it has no such field."""
    try:
        (root,) = struct.unpack_from("<I", data, 0)
        (back,) = struct.unpack_from("<i", data, root)
        vtable = root - back
        if not 0 <= vtable < root:
            return None
        (size,) = struct.unpack_from("<H", data, vtable)
        if size < _MODULE_FIELD + 2:
            return None
        (field,) = struct.unpack_from("<H", data, vtable + _MODULE_FIELD)
    except struct.error:
        return None
    return root + int(field) if field else None
