"""Read MLIR's types and attributes as plain values."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from numpy.typing import NDArray

from tunefarm_convert.stablehlo.program import OtherType, TensorType, TupleType, Type, bad_program
from tunefarm_tuning.core.untrusted_text import clean

_DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i1": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
_NUMBERS = re.compile(r"0x[0-9A-Fa-f]+|[-+]?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?")
_NAMED = {
    "dot_dimension_numbers": (
        stablehlo.DotDimensionNumbers,
        (
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
        ),
    ),
    "gather_dimension_numbers": (
        stablehlo.GatherDimensionNumbers,
        (
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
            "start_index_map",
            "index_vector_dim",
        ),
    ),
    "scatter_dimension_numbers": (
        stablehlo.ScatterDimensionNumbers,
        (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
            "scattered_dims_to_operand_dims",
            "index_vector_dim",
        ),
    ),
    "conv_dimension_numbers": (
        stablehlo.ConvDimensionNumbers,
        (
            "input_batch_dimension",
            "input_feature_dimension",
            "input_spatial_dimensions",
            "kernel_input_feature_dimension",
            "kernel_output_feature_dimension",
            "kernel_spatial_dimensions",
            "output_batch_dimension",
            "output_feature_dimension",
            "output_spatial_dimensions",
        ),
    ),
}
_BY_PLACE = {
    ("stablehlo.dot_general", "dot_dimension_numbers"): "dot_dimension_numbers",
    ("stablehlo.gather", "dimension_numbers"): "gather_dimension_numbers",
    ("stablehlo.scatter", "scatter_dimension_numbers"): "scatter_dimension_numbers",
    ("stablehlo.convolution", "dimension_numbers"): "conv_dimension_numbers",
}


def read_type(type_: Any) -> Type:
    """Return a type as a plain value."""
    text = str(type_)
    if isinstance(type_, ir.TupleType):
        return TupleType(tuple(read_type(type_.get_type(i)) for i in range(type_.num_types)))
    if not isinstance(type_, ir.RankedTensorType):
        return OtherType(text, "tunefarm supports only tensors", "unsupported-dtype")
    if not type_.has_static_shape:
        why = "a dynamic dimension; fix it before the export"
        return OtherType(text, why, "unknown-dimension")
    if type_.encoding is not None:
        return OtherType(text, "tensors that are encoded in some way", "unsupported-dtype")
    element = str(type_.element_type)
    if element not in _DTYPES:
        return OtherType(text, f"elements of type {element}", "unsupported-dtype")
    return TensorType(tuple(int(size) for size in type_.shape), _DTYPES[element])


def read_attribute(kind: str, name: str, attribute: Any) -> Any:
    """Return an operation's attribute as a plain value, or as text if its kind is unknown."""
    if (kind, name) in _BY_PLACE:
        wrapper, fields = _NAMED[_BY_PLACE[kind, name]]
        wrapped = wrapper(attribute)
        return {field: _numbers(getattr(wrapped, field)) for field in fields}
    return _plain(attribute)


def _numbers(value: Any) -> Any:
    return value if isinstance(value, int) else [int(number) for number in value]


def _plain(attribute: Any) -> Any:
    if isinstance(
        attribute, ir.StringAttr | ir.FlatSymbolRefAttr | ir.IntegerAttr | ir.BoolAttr | ir.FloatAttr
    ):
        return attribute.value
    if isinstance(attribute, ir.ArrayAttr):
        return [_plain(item) for item in attribute]
    if isinstance(attribute, ir.DictAttr):
        return {item.name: _plain(item.attr) for item in attribute}
    if isinstance(attribute, ir.DenseElementsAttr):
        return dense_array(attribute)
    if isinstance(attribute, ir.DenseI64ArrayAttr | ir.DenseI32ArrayAttr | ir.DenseBoolArrayAttr):
        return list(attribute)
    text = str(attribute)
    enumerated = re.fullmatch(r"#stablehlo<(?:comparison_type|comparison_direction) ([A-Z]+)>", text)
    return enumerated[1] if enumerated else clean(text, 300)


def dense_array(attribute: Any, blobs: dict[str, bytes] | None = None) -> NDArray[Any] | None:
    """Return a constant's elements; None if their type is not supported.

    If all elements are one number, the array is a view of a single element.

    Raises:
        InvalidModelError: invalid-stablehlo.
    """
    type_ = read_type(attribute.type)
    if not isinstance(type_, TensorType):
        return None
    dtype = np.dtype(ml_dtypes.bfloat16 if type_.dtype == "bfloat16" else type_.dtype)
    if not isinstance(attribute, ir.DenseElementsAttr):
        return _of_blob(str(attribute), type_, dtype, blobs or {})
    if attribute.is_splat:
        number = attribute.get_splat_value().value
        return np.broadcast_to(np.array(number, dtype), type_.shape)
    if type_.dtype == "bfloat16":
        return _bfloat16(str(attribute)).reshape(type_.shape)
    return np.array(attribute).astype(dtype, copy=False).reshape(type_.shape)


def _bfloat16(text: str) -> NDArray[Any]:
    """Read bfloat16 numbers from MLIR's text, which holds the bytes of long lists; the bindings have no buffer of this type."""
    body = text[text.index("<") + 1 : text.rindex(">", 0, text.rindex(":"))]
    if body.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(body[3:-1]), np.uint16).view(ml_dtypes.bfloat16)
    words = _NUMBERS.findall(body)
    bits = [
        np.uint16(int(word, 16)).view(ml_dtypes.bfloat16)
        if word.startswith("0x")
        else ml_dtypes.bfloat16(float(word))
        for word in words
    ]
    return np.array(bits, ml_dtypes.bfloat16)


def _of_blob(text: str, type_: TensorType, dtype: np.dtype[Any], blobs: dict[str, bytes]) -> NDArray[Any]:
    match = re.match(r"dense_resource<\"?([^\">]*)\"?>", text)
    blob = blobs.get(match[1]) if match else None
    if blob is None:
        raise bad_program(f"a constant's elements are missing in the file: {clean(text, 100)}")
    count = int(np.prod(type_.shape, dtype=np.int64))
    if len(blob) == dtype.itemsize and count > 1:
        return np.broadcast_to(np.frombuffer(blob, dtype)[0], type_.shape)
    if len(blob) != dtype.itemsize * count:
        raise bad_program(f"a constant has {len(blob)} bytes, which is not its size: {clean(text, 100)}")
    return np.frombuffer(blob, dtype).reshape(type_.shape)
