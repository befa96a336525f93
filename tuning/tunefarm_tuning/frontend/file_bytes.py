"""What a file's bytes say before any parser sees them: whether it is an ONNX file at all, and a whole one."""

from __future__ import annotations

from tunefarm_convert.stablehlo.file_form import HEAD_BYTES, begins_like_mlir
from tunefarm_tuning.core.errors import InvalidModelError

# Field numbers and wire types of ONNX's ModelProto.
_GRAPH_FIELD = 7
_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, _GRAPH_FIELD: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_MAX_FIELDS = 100_000
"""At the top level, where an honest model has a dozen."""

MLIR = "MLIR, such as StableHLO; tunefarm models convert net.mlir net.onnx makes ONNX of it"
"""What a file of MLIR looks like, for messages."""

_FOREIGN = (
    (
        b"PK\x03\x04",
        "a ZIP archive, such as PyTorch writes; tunefarm models convert makes ONNX of a .pt2 file",
    ),
    (b"\x80\x02", "a Python pickle, such as PyTorch writes; export the network with torch.onnx.export"),
    (b"\x80\x04", "a Python pickle; export the network to ONNX"),
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


def check_bytes(data: bytes) -> None:
    """Refuse what cannot be a whole ONNX model.

    Walks the outermost fields by their lengths alone, so that a file that was cut off is told from one that never
    was a model.

    Raises:
        InvalidModelError: empty-file, truncated-model, not-protobuf.
    """
    if not data:
        raise InvalidModelError("the file is empty", code="empty-file")
    position = 0
    for known in range(_MAX_FIELDS):
        if position == len(data):
            return
        try:
            tag, position = _varint(data, position)
            number, wire = tag >> 3, tag & 7
            if _FIELDS.get(number) != wire:
                raise _not_a_model(data)
            if wire == 0:
                _, position = _varint(data, position)
            else:
                length, position = _varint(data, position)
                if length > len(data) - position:
                    raise _Cut(length - (len(data) - position))
                position += length
        except _Cut as cut:
            if not known:
                raise _not_a_model(data) from None
            missing = f", {cut.missing} bytes or more are missing" if cut.missing else ""
            raise InvalidModelError(
                f"the model is cut off after {len(data)} bytes{missing}; upload the whole file",
                code="truncated-model",
                size_bytes=len(data),
            ) from None
    raise _not_a_model(data)


class _Cut(Exception):  # noqa: N818  (never leaves this module)
    def __init__(self, missing: int = 0) -> None:
        self.missing = missing


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position == len(data):
            raise _Cut
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _not_a_model(data)


def _not_a_model(data: bytes) -> InvalidModelError:
    head = data[:HEAD_BYTES]
    foreign = (what for magic, what in _FOREIGN if head.lstrip().startswith(magic))
    looks = MLIR if begins_like_mlir(head) else next(foreign, None)
    return InvalidModelError(
        "the file is not an ONNX model (a protobuf)" + (f"; it looks like {looks}" if looks else ""),
        code="not-protobuf",
    )
