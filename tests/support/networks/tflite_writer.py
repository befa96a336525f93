"""Write small TFLite files operator by operator, with the flatbuffers classes that also read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import tflite
from numpy.typing import NDArray

_TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "float16": tflite.TensorType.FLOAT16,
    "int8": tflite.TensorType.INT8,
    "uint8": tflite.TensorType.UINT8,
    "int16": tflite.TensorType.INT16,
    "int32": tflite.TensorType.INT32,
    "int4": tflite.TensorType.INT4,
    "int64": tflite.TensorType.INT64,
    "bool": tflite.TensorType.BOOL,
    "complex64": tflite.TensorType.COMPLEX64,
    "resource": tflite.TensorType.RESOURCE,
    "string": tflite.TensorType.STRING,
}
_VERSIONS = {
    "BATCH_MATMUL": 3,
    "BROADCAST_TO": 2,
    "RESIZE_BILINEAR": 3,
    "RESIZE_NEAREST_NEIGHBOR": 3,
    "TRANSPOSE_CONV": 3,
}


@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """How a sparse tensor is stored: the order of its levels, the dimensions in blocks, and each level.

    A level is a number of positions, or the segments and indices of those that are stored.
    """

    order: Sequence[int]
    levels: Sequence[int | tuple[Sequence[int], Sequence[int]]]
    blocks: Sequence[int] = ()


def scattered(shape: Sequence[int], seed: int) -> NDArray[np.float32]:
    """Return numbers between -1 and 1 that look random, and are the same with every version of everything."""
    x = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64) + np.uint64(seed * 7919 + 1)
    for shift in (15, 13, 16):
        x = ((x ^ (x >> np.uint64(shift))) * np.uint64(0x2C1B3C6D)) & np.uint64(0xFFFFFFFF)
    return (x.astype(np.float64) / 2**31 - 1).astype(np.float32).reshape(shape)


class TfliteWriter:
    """Collects tensors and operators; `data` closes the file. Methods return tensors by number.

    Args:
        seed: Of the random weights.
    """

    def __init__(self, seed: int = 0) -> None:
        self._builder = flatbuffers.Builder(1024)
        self._seed = seed
        self._tensors: list[dict[str, Any]] = []
        self._buffers: list[bytes] = [b""]
        self._operators: list[dict[str, Any]] = []
        self._codes: list[tuple[str, str, int]] = []
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._graphs: list[TfliteWriter] = [self]

    def subgraph(self) -> TfliteWriter:
        """Return a writer of one more graph of the same file. `number` is what operators call it by."""
        graph = TfliteWriter(self._seed + 1000 * len(self._graphs))
        graph._builder, graph._buffers, graph._codes = self._builder, self._buffers, self._codes
        graph._graphs = self._graphs
        self._graphs.append(graph)
        return graph

    @property
    def number(self) -> int:
        return self._graphs.index(self)

    def returns(self, *outputs: int) -> None:
        """Set the outputs of a graph that is not the first."""
        self._outputs = list(outputs)

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        name: str | None = None,
        data: NDArray[Any] | None = None,
        scale: float | Sequence[float] | None = None,
        zero: int | Sequence[int] = 0,
        axis: int = 0,
        signature: Sequence[int] | None = None,
        variable: bool = False,
        sparsity: Sparsity | None = None,
    ) -> int:
        """Add a tensor: a constant, where data is given. `sparsity` says where the elements of a sparse one are."""
        buffer = 0
        if data is not None:
            buffer = len(self._buffers)
            self._buffers.append(np.ascontiguousarray(data).tobytes())
        self._tensors.append(
            {
                "shape": [int(n) for n in shape],
                "dtype": dtype,
                "name": f"t{len(self._tensors)}" if name is None else name,
                "buffer": buffer,
                "scale": None if scale is None else np.atleast_1d(np.array(scale, np.float32)),
                "zero": np.atleast_1d(np.array(zero, np.int64)),
                "axis": axis,
                "signature": signature,
                "variable": variable,
                "sparsity": sparsity,
            }
        )
        return len(self._tensors) - 1

    def input(self, shape: Sequence[int], dtype: str = "float32", **more: Any) -> int:
        self._inputs.append(self.tensor(shape, dtype, **more))
        return self._inputs[-1]

    def constant(self, data: NDArray[Any], **more: Any) -> int:
        return self.tensor(data.shape, str(data.dtype), data=data, **more)

    def ints(self, *values: int) -> int:
        return self.constant(np.array(values, np.int32))

    def weight(self, *shape: int, spread: float = 1.0) -> int:
        self._seed += 1
        return self.constant(scattered(shape, self._seed) * np.float32(spread))

    def op(
        self,
        kind: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        dtype: str = "float32",
        options: str = "",
        fields: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> int:
        """Add an operator of one output, of this shape and dtype; `options` names its table of `fields`."""
        output = self.tensor(shape, dtype, **more)
        self.op_of(kind, inputs, [output], options, fields)
        return output

    def op_of(
        self,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        fields: Mapping[str, Any] | None = None,
        custom: str = "",
        custom_options: bytes = b"",
        version: int = 0,
    ) -> None:
        """Add an operator whose outputs are there already."""
        key = (kind, custom, version or _VERSIONS.get(kind, 1))
        if key not in self._codes:
            self._codes.append(key)
        self._operators.append(
            {
                "code": self._codes.index(key),
                "inputs": list(inputs),
                "outputs": list(outputs),
                "options": options,
                "fields": dict(fields or {}),
                "custom": custom_options,
            }
        )

    def data(self, outputs: Sequence[int]) -> bytes:
        """Return the file."""
        b = self._builder
        buffers = [self._buffer(buffer) for buffer in self._buffers]
        codes = [self._code(*code) for code in self._codes]
        self._outputs = list(outputs)
        graphs = [graph._graph() for graph in self._graphs]
        heads = [self._offsets(codes), self._offsets(graphs), self._offsets(buffers)]
        description = b.CreateString("made by a test")
        b.StartObject(5)
        b.PrependUint32Slot(0, 3, 0)
        b.PrependUOffsetTRelativeSlot(1, heads[0], 0)
        b.PrependUOffsetTRelativeSlot(2, heads[1], 0)
        b.PrependUOffsetTRelativeSlot(3, description, 0)
        b.PrependUOffsetTRelativeSlot(4, heads[2], 0)
        b.Finish(b.EndObject(), file_identifier=b"TFL3")
        return bytes(b.Output())

    def _graph(self) -> int:
        b = self._builder
        tensors = [self._tensor(tensor) for tensor in self._tensors]
        operators = [self._operator(operator) for operator in self._operators]
        parts = [
            self._offsets(tensors),
            self._vector(self._inputs, "i"),
            self._vector(self._outputs, "i"),
            self._offsets(operators),
            b.CreateString("main" if self._graphs[0] is self else f"graph_{self.number}"),
        ]
        b.StartObject(5)
        for slot, part in enumerate(parts):
            b.PrependUOffsetTRelativeSlot(slot, part, 0)
        return int(b.EndObject())

    def _buffer(self, data: bytes) -> int:
        b = self._builder
        vector = self._bytes(data) if data else None
        b.StartObject(1)
        if vector is not None:
            b.PrependUOffsetTRelativeSlot(0, vector, 0)
        return int(b.EndObject())

    def _code(self, kind: str, custom: str, version: int) -> int:
        b = self._builder
        name = b.CreateString(custom) if custom else None
        number = getattr(tflite.BuiltinOperator, kind)
        b.StartObject(4)
        b.PrependInt8Slot(0, min(number, 127), 0)
        if name is not None:
            b.PrependUOffsetTRelativeSlot(1, name, 0)
        b.PrependInt32Slot(2, version, 1)
        b.PrependInt32Slot(3, number, 0)
        return int(b.EndObject())

    def _tensor(self, tensor: Mapping[str, Any]) -> int:
        b = self._builder
        shape, name = self._vector(tensor["shape"], "i"), b.CreateString(tensor["name"])
        signature = None if tensor["signature"] is None else self._vector(tensor["signature"], "i")
        quantization = None
        if tensor["scale"] is not None:
            scale = self._vector(tensor["scale"].tolist(), "f")
            zero = self._vector(np.broadcast_to(tensor["zero"], tensor["scale"].shape).tolist(), "q")
            b.StartObject(7)
            b.PrependUOffsetTRelativeSlot(2, scale, 0)
            b.PrependUOffsetTRelativeSlot(3, zero, 0)
            b.PrependInt32Slot(6, tensor["axis"], 0)
            quantization = b.EndObject()
        sparsity = None if tensor["sparsity"] is None else self._sparsity(tensor["sparsity"])
        b.StartObject(8)
        b.PrependUOffsetTRelativeSlot(0, shape, 0)
        b.PrependInt8Slot(1, _TYPES[tensor["dtype"]], 0)
        b.PrependUint32Slot(2, tensor["buffer"], 0)
        b.PrependUOffsetTRelativeSlot(3, name, 0)
        if quantization is not None:
            b.PrependUOffsetTRelativeSlot(4, quantization, 0)
        b.PrependBoolSlot(5, tensor["variable"], False)
        if sparsity is not None:
            b.PrependUOffsetTRelativeSlot(6, sparsity, 0)
        if signature is not None:
            b.PrependUOffsetTRelativeSlot(7, signature, 0)
        return int(b.EndObject())

    def _operator(self, operator: Mapping[str, Any]) -> int:
        b = self._builder
        inputs, outputs = self._vector(operator["inputs"], "i"), self._vector(operator["outputs"], "i")
        options = self._options(operator["options"], operator["fields"]) if operator["options"] else None
        custom = self._bytes(operator["custom"]) if operator["custom"] else None
        b.StartObject(14)
        b.PrependUint32Slot(0, operator["code"], 0)
        b.PrependUOffsetTRelativeSlot(1, inputs, 0)
        b.PrependUOffsetTRelativeSlot(2, outputs, 0)
        if options is not None:
            newer = hasattr(tflite.BuiltinOptions2, operator["options"])
            union = tflite.BuiltinOptions2 if newer else tflite.BuiltinOptions
            b.PrependUint8Slot(11 if newer else 3, getattr(union, operator["options"]), 0)
            b.PrependUOffsetTRelativeSlot(12 if newer else 4, options, 0)
        if custom is not None:
            b.PrependUOffsetTRelativeSlot(5, custom, 0)
        return int(b.EndObject())

    def _sparsity(self, sparsity: Sparsity) -> int:
        b = self._builder
        levels = []
        for level in sparsity.levels:
            if isinstance(level, int):
                b.StartObject(6)
                b.PrependInt32Slot(1, level, 0)
            else:
                segments, indices = (self._int32_vector(numbers) for numbers in level)
                b.StartObject(6)
                b.PrependInt8Slot(0, tflite.DimensionType.SPARSE_CSR, 0)
                b.PrependUint8Slot(2, tflite.SparseIndexVector.Int32Vector, 0)
                b.PrependUOffsetTRelativeSlot(3, segments, 0)
                b.PrependUint8Slot(4, tflite.SparseIndexVector.Int32Vector, 0)
                b.PrependUOffsetTRelativeSlot(5, indices, 0)
            levels.append(int(b.EndObject()))
        parts = [self._vector(sparsity.order, "i"), self._vector(sparsity.blocks, "i"), self._offsets(levels)]
        b.StartObject(3)
        for slot, part in enumerate(parts):
            b.PrependUOffsetTRelativeSlot(slot, part, 0)
        return int(b.EndObject())

    def _int32_vector(self, numbers: Sequence[int]) -> int:
        vector = self._vector(numbers, "i")
        self._builder.StartObject(1)
        self._builder.PrependUOffsetTRelativeSlot(0, vector, 0)
        return int(self._builder.EndObject())

    def _bytes(self, data: bytes) -> int:
        b = self._builder
        b.StartVector(1, len(data), 16)
        b.head = b.head - len(data)
        b.Bytes[b.head : b.head + len(data)] = data
        return int(b.EndVector())

    def _options(self, name: str, fields: Mapping[str, Any]) -> int:
        module = __import__(f"tflite.{name}", fromlist=[name])
        b = self._builder
        values = {k: self._numbers(v) if isinstance(v, list) else v for k, v in fields.items()}
        values = {k: b.CreateString(v) if isinstance(v, str) else v for k, v in values.items()}
        getattr(module, f"{name}Start")(self._builder)
        for field, value in values.items():
            getattr(module, f"{name}Add{field}")(self._builder, value)
        return int(getattr(module, f"{name}End")(self._builder))

    def _numbers(self, values: Sequence[Any]) -> int:
        return self._vector(values, "f" if any(isinstance(value, float) for value in values) else "i")

    def _offsets(self, offsets: Sequence[int]) -> int:
        b = self._builder
        b.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            b.PrependUOffsetTRelative(offset)
        return int(b.EndVector())

    def _vector(self, values: Sequence[Any], kind: str) -> int:
        b = self._builder
        size = 8 if kind == "q" else 4
        prepend = {"i": b.PrependInt32, "f": b.PrependFloat32, "q": b.PrependInt64}[kind]
        b.StartVector(size, len(values), size)
        for value in reversed(values):
            prepend(value)
        return int(b.EndVector())
