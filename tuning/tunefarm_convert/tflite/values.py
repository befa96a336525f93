"""The tensors of a conversion, in up to four forms each.

TFLite's images have their channels last, ONNX's first. TFLite's quantised operators compute on integers, ONNX on the
real numbers that they stand for. A form of a tensor is made when a converter first asks for it. So transposes appear
where a chain of operators on channels-first images begins and ends, and nowhere inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from tunefarm_convert.onnx_writer import OnnxWriter
from tunefarm_convert.tflite.graph import Graph, Quantization, Tensor, bad_file
from tunefarm_tuning.core.untrusted_text import clean

TO_FIRST = (0, 3, 1, 2)
"""Dimension i of the channels-first form is dimension ``TO_FIRST[i]`` of the file's."""
TO_LAST = (0, 2, 3, 1)


Blocks = tuple[int, list[int], list[tuple[int, int]]]
"""A tensor that was cut into blocks, their sizes, and the padding around it."""
Dilated = Callable[[list[int], list[tuple[int, int]]], "str | None"]
"""Makes a convolution of blocks one of the whole, dilated, given the blocks and what is cropped; None if they do not fit."""


@dataclass(slots=True, kw_only=True)
class _Value:
    tensor: Tensor
    data: NDArray[Any] | None
    data_quantization: Quantization | None
    forms: dict[tuple[bool, bool], str] = field(default_factory=dict)
    padded: tuple[int, tuple[int, int, int, int]] | None = None
    variable_name: str = ""
    product: tuple[int, NDArray[np.float64]] | None = None
    blocks: Blocks | None = None
    dilated: Dilated | None = None


class Values:
    """The ONNX tensors that hold the file's tensors.

    In all methods ``first`` means channels first (tensors of four dimensions only), and ``raw`` the stored integers of a
    quantised tensor; for a tensor that is not quantised it makes no difference.
    """

    def __init__(self, graph: Graph, writer: OnnxWriter) -> None:
        self.writer = writer
        self._values = [
            _Value(
                tensor=tensor,
                data=tensor.data,
                data_quantization=tensor.quantization if tensor.is_quantized else None,
            )
            for tensor in graph.tensors
        ]

    def tensor(self, index: int) -> Tensor:
        return self._values[index].tensor

    def shape(self, index: int) -> tuple[int, ...]:
        return self._values[index].tensor.shape

    def set_shape(self, index: int, shape: tuple[int, ...]) -> None:
        """Replace the file's shape of a tensor that is not computed yet."""
        self._values[index].tensor = replace(self._values[index].tensor, shape=shape)

    def exists(self, index: int) -> bool:
        """Return whether a tensor has a value: computed, fed or constant."""
        value = self._values[index]
        return value.data is not None or bool(value.forms)

    def adopt(self, index: int, other: Values, source: int) -> None:
        """Make a tensor the same as one of another graph: its shape, and its value or its variable."""
        value, taken = self._values[index], other._values[source]
        if value.tensor.dtype != taken.tensor.dtype:
            raise bad_file(
                f"the TFLite file passes tensor {source} of {clean(taken.tensor.dtype, 20)} as tensor {index} "
                f"of {clean(value.tensor.dtype, 20)}"
            )
        quantization = taken.tensor.quantization
        value.tensor = replace(value.tensor, shape=taken.tensor.shape, quantization=quantization)
        value.data, value.data_quantization = taken.data, taken.data_quantization
        value.forms, value.variable_name = dict(taken.forms), taken.variable_name
        if not other.exists(source) and not taken.variable_name:
            raise bad_file(f"the TFLite file uses tensor {source} before anything computes it")

    def name_variable(self, index: int, name: str) -> None:
        """Note that a tensor refers to a variable."""
        self._values[index].variable_name = name

    def variable_name(self, index: int) -> str:
        """Return the variable that a tensor refers to; empty if it refers to none."""
        return self._values[index].variable_name

    def forms(self) -> dict[str, tuple[Tensor, tuple[int, ...]]]:
        """Return the file's tensor and its shape in this form, by the name of the ONNX tensor."""
        return {
            name: (
                value.tensor,
                tuple(value.tensor.shape[i] for i in TO_FIRST) if first else value.tensor.shape,
            )
            for value in self._values
            for (_, first), name in value.forms.items()
        }

    def constant(self, index: int) -> NDArray[Any] | None:
        """Return the elements of a constant (integers, if it is quantised); None for a computed tensor."""
        return self._values[index].data

    def constant_quantization(self, index: int) -> Quantization | None:
        """Return how the integers of a constant stand for real numbers; None if they do not."""
        return self._values[index].data_quantization

    def set_constant(self, index: int, data: NDArray[Any], quantization: Quantization | None = None) -> None:
        """Make a tensor a constant: `data`, interpreted by `quantization`."""
        value = self._values[index]
        if data.shape != value.tensor.shape:
            raise bad_file(
                f"the TFLite file says that tensor {index} has the shape {list(value.tensor.shape)}, but it has "
                f"{list(data.shape)}"
            )
        value.data, value.data_quantization = data, quantization
        value.forms.clear()

    def is_first_only(self, index: int) -> bool:
        """Return whether the tensor exists only with its channels first."""
        value = self._values[index]
        return value.data is None and bool(value.forms) and all(first for _, first in value.forms)

    def put(self, index: int, name: str, *, first: bool = False, raw: bool = False) -> None:
        """Set the ONNX tensor that holds a tensor. Real numbers of a quantised one are rounded to its steps."""
        value = self._values[index]
        if first and value.tensor.rank != len(TO_FIRST):
            raise bad_file(
                f"the TFLite file says that tensor {index}, an image, has the shape {list(value.tensor.shape)}"
            )
        if value.tensor.is_quantized and not raw:
            scales = value.tensor.quantization
            name = self._coded("QuantizeLinear", name, value.tensor, scales, value.tensor.dtype, first=first)
        value.forms[_key(value.tensor, raw=True), first] = name

    def get(self, index: int, *, first: bool = False, raw: bool = False) -> str:
        """Return the ONNX tensor of a tensor in the given form."""
        value = self._values[index]
        if value.data is not None:
            perm = TO_FIRST if first else tuple(range(value.tensor.rank))
            return self.arranged(index, perm, raw=raw)
        key = (_key(value.tensor, raw=raw), first)
        if key not in value.forms:
            if not value.forms:
                raise bad_file(f"the TFLite file uses tensor {index} before anything computes it")
            value.forms[key] = self._converted(value, first=first, raw=key[0])
        return value.forms[key]

    def arranged(self, index: int, perm: Sequence[int], *, raw: bool = False) -> str:
        """Return a tensor with its dimensions in another order; a constant is stored in that order."""
        value = self._values[index]
        raw = raw and value.tensor.is_quantized
        if value.data is None:
            plain = self.get(index, raw=raw)
            return self._transposed(plain, value.tensor.shape, perm, value.tensor.name)
        stored = self.writer.weight(np.transpose(value.data, perm), value.tensor.name)
        return stored if raw else self._read(value, stored, perm)

    def spread(self, index: int) -> str:
        """Return a constant of up to four dimensions as a channels-first image that broadcasts."""
        value = self._values[index]
        assert value.data is not None
        image_shape = (1,) * (4 - value.data.ndim) + value.data.shape
        scales = value.data_quantization
        if scales is not None and len(scales.scale) > 1:
            name = self.writer.node("Reshape", [self.get(index), self.writer.ints(image_shape)])
            return self.writer.node("Transpose", [name], perm=list(TO_FIRST))
        stored = value.data.reshape(image_shape).transpose(TO_FIRST)
        return self._read(value, self.writer.weight(stored, value.tensor.name), TO_FIRST)

    def bias(self, index: int) -> str:
        """Return a bias as real numbers; a quantised operator's is of 32-bit or 64-bit integers."""
        value = self._values[index]
        data, scales = value.data, value.tensor.quantization
        if data is None or data.dtype.kind != "i" or value.data_quantization is not None:
            return self.get(index)
        if scales is None:
            raise bad_file(f"the TFLite file has no scale for the bias, tensor {index}")
        if str(data.dtype) == "int32":
            stored = self.writer.weight(data, value.tensor.name)
            return self._coded("DequantizeLinear", stored, value.tensor, scales, "int32")
        real = (data.astype(np.float64) - scales.zero) * scales.scale
        return self.writer.weight(real.astype(np.float32), value.tensor.name)

    def reshaped(self, index: int, shape: Sequence[int], *, raw: bool = False) -> str:
        """Return a tensor in another shape."""
        value = self._values[index]
        # if only one dimension has more than one element, both forms have the same order of elements
        first = self.is_first_only(index) and _is_reshape(value.tensor.shape)
        return self.writer.node("Reshape", [self.get(index, first=first, raw=raw), self.writer.ints(shape)])

    def note_padding(self, index: int, source: int, pads: tuple[int, int, int, int]) -> None:
        """Note that a tensor is `source` padded with zeros: top, left, bottom, right."""
        self._values[index].padded = (source, pads)

    def padding(self, index: int) -> tuple[int, tuple[int, int, int, int]]:
        """Return the source and padding of `note_padding`, or the tensor itself with no padding."""
        return self._values[index].padded or (index, (0, 0, 0, 0))

    def note_blocks(self, index: int, source: int, sizes: list[int], pads: list[tuple[int, int]]) -> None:
        """Note that a tensor has the blocks of `source`, padded, as batches."""
        self._values[index].blocks = source, sizes, pads

    def blocks(self, index: int) -> Blocks | None:
        """Return what `note_blocks` noted; None if it was nothing."""
        return self._values[index].blocks

    def note_dilated(self, index: int, dilated: Dilated) -> None:
        """Note how to compute a convolution of blocks without cutting them."""
        self._values[index].dilated = dilated

    def dilated(self, index: int) -> Dilated | None:
        """Return what `note_dilated` noted; None if it was nothing."""
        return self._values[index].dilated

    def note_product(self, index: int, source: int, matrix: NDArray[np.float64]) -> None:
        """Note that the rows of a tensor are those of `source` times a constant matrix, perhaps in another shape."""
        self._values[index].product = source, matrix

    def product(self, index: int) -> tuple[int, NDArray[np.float64]] | None:
        """Return the source and matrix of `note_product`; None if nothing is noted."""
        return self._values[index].product

    def _read(self, value: _Value, stored: str, perm: Sequence[int]) -> str:
        """Return the real numbers of a stored constant."""
        assert value.data is not None
        scales, dtype = value.data_quantization, np.dtype(value.tensor.dtype)
        if scales is not None:
            return self._coded(
                "DequantizeLinear", stored, value.tensor, scales, str(value.data.dtype), perm=perm
            )
        if value.data.dtype != dtype:
            return self.writer.node("Cast", [stored], to=helper.np_dtype_to_tensor_dtype(dtype))
        return stored

    def _converted(self, value: _Value, *, first: bool, raw: bool) -> str:
        if not raw:
            stored = self.get(value.tensor.index, first=first, raw=True)
            scales = value.tensor.quantization
            return self._coded(
                "DequantizeLinear", stored, value.tensor, scales, value.tensor.dtype, first=first
            )
        other = value.forms[True, not first]
        shape = value.tensor.shape
        if first:
            return self._transposed(other, shape, TO_FIRST, value.tensor.name)
        return self._transposed(other, [shape[i] for i in TO_FIRST], TO_LAST, value.tensor.name)

    def _transposed(self, name: str, shape: Sequence[int], perm: Sequence[int], wanted: str) -> str:
        if list(perm) == list(range(len(shape))):
            return name
        moved = [shape[i] for i in perm]
        if [i for i in perm if shape[i] != 1] == [i for i in range(len(shape)) if shape[i] != 1]:
            return self.writer.node("Reshape", [name, self.writer.ints(moved)], wanted)
        return self.writer.node("Transpose", [name], wanted, perm=list(perm))

    def _coded(
        self,
        operator: str,
        name: str,
        tensor: Tensor,
        scales: Quantization | None,
        dtype: str,
        *,
        first: bool = False,
        perm: Sequence[int] | None = None,
    ) -> str:
        assert scales is not None
        if dtype == "int16":
            self.writer.need_16_bits()
        if len(scales.scale) == 1:
            scale, zero = scales.scale.reshape(()), scales.zero.reshape(())
            inputs = [name, self.writer.weight(scale), self.writer.weight(zero.astype(dtype))]
            return self.writer.node(operator, inputs, tensor.name)
        axis = list(perm or (TO_FIRST if first else range(tensor.rank))).index(scales.axis)
        inputs = [name, self.writer.weight(scales.scale), self.writer.weight(scales.zero.astype(dtype))]
        return self.writer.node(operator, inputs, tensor.name, axis=axis)


def _key(tensor: Tensor, *, raw: bool) -> bool:
    return raw or not tensor.is_quantized


def _is_reshape(shape: Sequence[int]) -> bool:
    return [i for i in TO_FIRST if shape[i] != 1] == [i for i in range(4) if shape[i] != 1]
