"""Parse a TFLite file, a flatbuffer, with checks of all offsets and counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefarm_convert.tflite.graph import (
    COMPLEX_DTYPE,
    DTYPES,
    Graph,
    Operator,
    Quantization,
    Tensor,
    bad_file,
)
from tunefarm_convert.tflite.sparsity import read_layout, read_numbers
from tunefarm_tuning.core.errors import InvalidModelError
from tunefarm_tuning.core.untrusted_text import clean

_MAX_TENSORS = 400_000
_MAX_OPERATORS = 100_000
_MAX_GRAPHS = 1000
_MAX_RANK = 8
_MAX_ARGUMENTS = 4096
_MAX_SIZE = 1 << 31
_PLACEHOLDER = 127
"""Value of the old one-byte field of an operator's number if the number is above 127."""

_NUMPY_NAMES = {"INT4": "int8"}
"""NumPy's names of element types, where they are not those of the format in small letters."""


def read_graphs(data: bytes) -> tuple[Graph, ...]:
    """Read the graphs of a file. The first one is the network.

    Raises:
        InvalidModelError: truncated-model, invalid-tflite, unsupported-dtype, too-large.
    """
    try:
        return _Reader(data).graphs()
    except (InvalidModelError, MemoryError):
        raise
    except Exception as error:
        # errors of struct, numpy or Python: an offset or a count points outside of the file
        raise bad_file(
            f"the TFLite file is damaged or cut off after {len(data)} bytes: something in it points outside of it"
        ) from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        import tflite

        self._tflite = tflite
        self._data = data
        self._model = tflite.Model.GetRootAs(data, 0)
        self._dtypes = {code: name for name, code in vars(tflite.TensorType).items() if name.isupper()}
        self._kinds = {code: name for name, code in vars(tflite.BuiltinOperator).items() if name.isupper()}
        newer = vars(tflite.BuiltinOptions2).items()
        self._newer_options = {code: name for name, code in newer if name[0] != "_"}
        self._options = {code: name for name, code in vars(tflite.BuiltinOptions).items() if name[0] != "_"}

    def graphs(self) -> tuple[Graph, ...]:
        count = self._model.SubgraphsLength()
        if not count:
            raise bad_file("the TFLite file holds no graph")
        self._refuse_many("graphs", count, _MAX_GRAPHS)
        return tuple(self._graph(self._model.Subgraphs(i)) for i in range(count))

    def _graph(self, graph: Any) -> Graph:
        self._refuse_many("tensors", graph.TensorsLength(), _MAX_TENSORS)
        self._refuse_many("operators", graph.OperatorsLength(), _MAX_OPERATORS)
        tensors = tuple(self._tensor(graph.Tensors(i), i) for i in range(graph.TensorsLength()))
        operators = tuple(self._operator(graph.Operators(i), i) for i in range(graph.OperatorsLength()))
        inputs, outputs = read_numbers(graph.InputsAsNumpy()), read_numbers(graph.OutputsAsNumpy())
        self._refuse_many("inputs and outputs", len(inputs) + len(outputs), _MAX_ARGUMENTS)
        for index in (*inputs, *outputs):
            self._check_index(index, len(tensors))
        for operator in operators:
            for index in operator.outputs:
                self._check_index(index, len(tensors))
            for index in operator.inputs:
                if index != -1:
                    self._check_index(index, len(tensors))
        return Graph(tensors=tensors, operators=operators, inputs=inputs, outputs=outputs)

    def _refuse_many(self, noun: str, count: int, limit: int) -> None:
        if count > limit:
            raise InvalidModelError(
                f"the TFLite file claims {count} {noun}; the limit is {limit}", code="too-large"
            )

    def _check_index(self, index: int, count: int) -> None:
        if not 0 <= index < count:
            raise bad_file(f"the TFLite file is damaged: it names tensor {index} of {count}")

    def _tensor(self, table: Any, index: int) -> Tensor:
        name = (table.Name() or b"").decode("utf-8", "replace")
        shape = read_numbers(table.ShapeAsNumpy())
        label = f"tensor '{clean(name, 60)}' (number {index})"
        if len(shape) > _MAX_RANK or any(not 0 <= size < _MAX_SIZE for size in shape):
            raise bad_file(f"{label} has the invalid shape {list(shape[:16])}")
        type_name = str(self._dtypes.get(table.Type(), f"number {table.Type()}"))
        dtype = _NUMPY_NAMES.get(type_name, type_name.lower())
        known = dtype in DTYPES or dtype == COMPLEX_DTYPE
        variable = bool(table.IsVariable())
        data = self._constant(table, shape, dtype, type_name, label) if known and not variable else None
        return Tensor(
            index=index,
            name=name,
            shape=shape,
            dtype=dtype,
            data=data,
            quantization=_quantization(table.Quantization(), shape, label),
            open_dims=_open_dims(read_numbers(table.ShapeSignatureAsNumpy()), shape),
            variable=variable,
        )

    def _constant(
        self, tensor: Any, shape: tuple[int, ...], dtype: str, type_name: str, label: str
    ) -> NDArray[Any] | None:
        buffer = tensor.Buffer()
        if not 0 <= buffer < self._model.BuffersLength():
            raise bad_file(f"{label} keeps its data in buffer {buffer}, of {self._model.BuffersLength()}")
        if buffer == 0:  # by convention the empty buffer
            return None
        table = self._model.Buffers(buffer)
        if table.Offset() > 1:  # in large files, after the flatbuffer
            if table.Offset() + table.Size() > len(self._data):
                raise InvalidModelError(
                    f"the model is cut off after {len(self._data)} bytes: the data of {label} lies behind",
                    code="truncated-model",
                )
            raw = np.frombuffer(self._data, np.uint8, table.Size(), table.Offset())
        elif table.DataLength():
            raw = table.DataAsNumpy()
        else:
            return None
        layout = None if tensor.Sparsity() is None else read_layout(tensor.Sparsity(), shape, label)
        count = math.prod(shape) if layout is None else len(layout)
        if type_name == "INT4":
            raw = _unpacked(raw).view(np.uint8)[:count]
        wanted = count * np.dtype(dtype).itemsize
        if raw.nbytes != wanted:
            raise bad_file(
                f"{label} of shape {list(shape)} should hold {wanted} bytes, but holds {raw.nbytes}"
            )
        numbers = np.frombuffer(raw.tobytes(), np.dtype(dtype).newbyteorder("<")).astype(dtype)
        if layout is None:
            return numbers.reshape(shape)
        dense = np.zeros(math.prod(shape), dtype)
        dense[layout] = numbers
        return dense.reshape(shape)

    def _operator(self, table: Any, index: int) -> Operator:
        number = table.OpcodeIndex()
        if not 0 <= number < self._model.OperatorCodesLength():
            raise bad_file(f"operator number {index} is of a kind that the TFLite file does not list")
        code = self._model.OperatorCodes(number)
        old, new = code.DeprecatedBuiltinCode(), code.BuiltinCode()
        builtin = max(old, new) if old < _PLACEHOLDER else new
        kind = str(self._kinds.get(builtin, f"number {builtin}"))
        if kind == "CUSTOM":
            kind = f"custom operator {(code.CustomCode() or b'').decode('utf-8', 'replace')}"
        for length in (table.InputsLength(), table.OutputsLength()):
            self._refuse_many(f"tensors at operator number {index}", length, _MAX_ARGUMENTS)
        return Operator(
            index=index,
            kind=kind,
            inputs=read_numbers(table.InputsAsNumpy()),
            outputs=read_numbers(table.OutputsAsNumpy()),
            options=self._fields(table),
            custom=bytes(table.CustomOptionsAsNumpy()) if table.CustomOptionsLength() else b"",
            version=code.Version(),
        )

    def _fields(self, table: Any) -> dict[str, Any]:
        """Read an options table of any kind: its numbers and texts, and its lists of numbers as tuples."""
        union, name = table.BuiltinOptions(), self._options.get(table.BuiltinOptionsType())
        if union is None:  # newer operators have a table of their own
            union, name = table.BuiltinOptions2(), self._newer_options.get(table.BuiltinOptions2Type())
        kind = getattr(self._tflite, str(name), None)
        if union is None or kind is None or not hasattr(kind, "Init"):
            return {}
        options = kind()
        options.Init(union.Bytes, union.Pos)
        fields: dict[str, Any] = {}
        for field, method in vars(kind).items():
            if field[0].isupper() and getattr(getattr(method, "__code__", None), "co_argcount", 0) == 1:
                value = getattr(options, field)()
                if field.endswith("AsNumpy"):
                    fields[field.removesuffix("AsNumpy")] = read_numbers(value)
                elif isinstance(value, bool | int | float):
                    fields[field] = value
                elif isinstance(value, bytes):
                    fields[field] = value.decode("utf-8", "replace")
        return fields


def _open_dims(signature: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions that a tensor's signature leaves open; without one, all are fixed."""
    return tuple(i for i, size in enumerate(signature) if size < 0) if len(signature) == len(shape) else ()


def _quantization(table: Any, shape: tuple[int, ...], label: str) -> Quantization | None:
    if table is None or not table.ScaleLength():
        return None
    scale = np.array(table.ScaleAsNumpy(), np.float32)
    zero = np.array(table.ZeroPointAsNumpy(), np.int64) if table.ZeroPointLength() else np.zeros(1, np.int64)
    axis = table.QuantizedDimension()
    if len(shape) == 1:  # older converters wrote the weights' dimension to the bias
        axis = 0
    if len(scale) > 1 and not (0 <= axis < len(shape) and shape[axis] == len(scale)):
        raise bad_file(f"{label} of shape {list(shape)} has {len(scale)} scales for dimension {axis}")
    if len(zero) not in (1, len(scale)):
        raise bad_file(f"{label} has {len(scale)} scales, but {len(zero)} zero points")
    if not np.all(np.isfinite(scale)) or np.any(scale < 0):
        raise bad_file(f"{label} has a scale that is not a positive number")
    if np.any(scale == 0):
        return None
    return Quantization(scale=scale, zero=np.broadcast_to(zero, scale.shape), axis=axis)


def _unpacked(raw: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Return numbers of 4 bits, two of which share a byte, the lower one first."""
    both = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1).astype(np.int8)
    return np.where(both > 7, both - 16, both).astype(np.int8)
