"""Which ONNX element types tunefarm takes."""

from __future__ import annotations

from onnx import TensorProto

_SUPPORTED = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.DOUBLE: "float64",
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT8: "uint8",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
}

SUPPORTED_NAMES = tuple(_SUPPORTED.values())

TAKEN = f"{', '.join(SUPPORTED_NAMES)}, and inside the network bfloat16 (cast at its edges)"
"""For messages."""


def dtype_name(element_type: int) -> str | None:
    """Return NumPy's and TVM's name of an ONNX element type, None where we do not take it."""
    return _SUPPORTED.get(element_type)


def onnx_name(element_type: int) -> str:
    """Return ONNX's own name of an element type, for messages."""
    try:
        return str(TensorProto.DataType.Name(element_type)).lower()
    except ValueError:
        return f"number {element_type}"
