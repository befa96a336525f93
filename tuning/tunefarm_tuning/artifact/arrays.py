"""Converts arrays to a compiled model's inputs and its outputs to arrays, copying only if needed.

Needs Python 3.11, apache-tvm and numpy. This file is also inside every artifact, for `loader.py` there.

Compiled kernels read a contiguous input where it lies. Those of older artifacts, and of GPUs, read it with instructions that need it
aligned to 64 bytes, and would crash the process otherwise. Any other array is copied first, to a buffer that is kept for it. A small
array is always copied: that is faster than sharing it. An output belongs to the caller: it is the memory that the model wrote, which no later call writes to, or a copy if
that memory is (or may be) also an input's, a weight's or another output's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

if __package__:
    from tunefarm_tuning.artifact.sizes import shape_text
else:  # beside this file, in the zip
    from tunefarm_sizes import shape_text  # type: ignore[import-not-found,no-redef]

ALIGNMENT_BYTES = 64
_SMALL_BYTES = 8 << 10
_CPU = 1  # DLPack's number for it


class ArtifactInputError(ValueError):
    """The model cannot take these inputs."""


class InputSlot:
    """Converts one input of a model. Concurrency: none; one call at a time uses it."""

    def __init__(self, spec: Mapping[str, Any], device: Any, *, unaligned: bool = False) -> None:
        self._spec = spec
        self._name, self._dtype_name = spec["name"], spec["dtype"]
        self._shape = tuple(spec["shape"])
        self._dtype = numpy_dtype(self._dtype_name)
        self._device = device
        # TVM copies what numpy's DLPack does not support (bfloat16), and inputs of another device.
        self._copied = self._dtype_name == "bfloat16" or device.dlpack_device_type() != _CPU
        self._is_small = not self._copied and math.prod(self._shape) * self._dtype.itemsize <= _SMALL_BYTES
        self._alignment = self._dtype.itemsize if unaligned else ALIGNMENT_BYTES
        self._buffer: Any = None
        self._tensor: Any = None
        if self._is_small:
            self._keep_buffer()

    def take(self, value: Any) -> Any:
        """Return the value as a tensor for the model, which may share the value's memory.

        Raises:
            ArtifactInputError: If the value is no array, or of another shape or dtype.
        """
        if type(value) is np.ndarray and value.dtype is self._dtype and value.shape == self._shape:
            if self._is_small:
                self._buffer[...] = value
                return self._tensor
            return self._hand_over(value)
        return self._convert(value)

    def _keep_buffer(self) -> None:
        import tvm_ffi

        self._buffer = aligned_empty(self._shape, self._dtype)
        self._tensor = tvm_ffi.from_dlpack(self._buffer)

    def _hand_over(self, array: NDArray[Any]) -> Any:
        import tvm_ffi

        if self._copied:
            import tvm

            return tvm.runtime.tensor(array, self._device)
        if not self._is_small and array.flags.c_contiguous:
            # Without a version, numpy refuses to share a read-only array; nothing here writes to it.
            shared = array if array.flags.writeable else array.__dlpack__(max_version=(1, 0))
            tensor = tvm_ffi.from_dlpack(shared)
            if not tensor.data_ptr() % self._alignment:
                return tensor
        if self._buffer is None:
            self._keep_buffer()
        self._buffer[...] = array
        return self._tensor

    def _convert(self, value: Any) -> Any:
        if (
            not isinstance(value, np.ndarray)
            and hasattr(value, "__dlpack__")
            and hasattr(value, "__dlpack_device__")
        ):
            tensor = self._from_dlpack(value)
            if tensor is not None:
                return tensor
        try:
            array = np.asarray(value)
        except (
            ValueError,
            TypeError,
            RuntimeError,
        ) as error:  # lists of different lengths; a tensor with a gradient
            raise ArtifactInputError(f"input {self._name!r} is not an array: {error}") from error
        dtype = array.dtype.newbyteorder("=")  # another byte order has the same numbers
        self._check(str(dtype), array.shape)
        return self._hand_over(array.astype(dtype, copy=False))

    def _from_dlpack(self, value: Any) -> Any | None:
        """Return another library's array as a tensor; None if it must be converted."""
        import tvm_ffi

        try:
            tensor = tvm_ffi.from_dlpack(value)
        except (BufferError, TypeError, ValueError, RuntimeError):
            return None  # read-only, or of a dtype that TVM lacks: `numpy.asarray` may convert it
        self._check(str(tensor.dtype), tuple(tensor.shape))
        ours = (self._device.dlpack_device_type(), self._device.index)
        if (tensor.device.dlpack_device_type(), tensor.device.index) != ours:
            if tensor.device.dlpack_device_type() == _CPU:
                return None
            raise ArtifactInputError(
                f"input {self._name!r} is on {tensor.device}, but the model runs on {self._device}: move it there"
            )
        if tensor.is_contiguous() and not tensor.data_ptr() % self._alignment:
            return tensor
        return None if self._copied else self._hand_over(np.from_dlpack(tensor))

    def _check(self, dtype: str, shape: tuple[int, ...]) -> None:
        if dtype != self._dtype_name:
            raise ArtifactInputError(
                f"input {self._name!r} is {dtype}, but the model takes {self._dtype_name}: "
                f"convert it with .astype({self._dtype_name!r})"
            )
        if shape != self._shape:
            raise ArtifactInputError(
                f"input {self._name!r} has shape {list(shape)}, but the model takes {list(self._shape)}"
            )


class OutputTaker:
    """Converts a model's results to numpy arrays. Concurrency: any thread."""

    def __init__(self, specs: Sequence[Mapping[str, Any]], device: Any) -> None:
        self._names = [spec["name"] for spec in specs]
        here = device.dlpack_device_type() == _CPU
        # Whether numpy can read an output in place; TVM copies the others.
        self._is_seen = [here and spec["dtype"] != "bfloat16" for spec in specs]
        # Whether an output has new memory at each call (a constant has not); None until the second call.
        self._is_fresh: list[bool | None] = [
            None if seen and _nbytes(spec) > _SMALL_BYTES else False
            for spec, seen in zip(specs, self._is_seen, strict=True)
        ]
        self._first: list[Any] | None = None
        # The fastest way for small outputs, which are common.
        self._all_copied = all(self._is_seen) and not any(fresh is None for fresh in self._is_fresh)
        import tvm

        self._tensor_type = tvm.runtime.Tensor

    def take(self, result: Any, inputs: Sequence[Any]) -> dict[str, NDArray[Any]] | None:
        """Return the outputs by name; None if there are more or fewer results than outputs."""
        tensors = [result] if type(result) is self._tensor_type else self._flat(result)
        if len(tensors) != len(self._names):
            return None
        if self._all_copied:
            return dict(zip(self._names, [np.from_dlpack(tensor).copy() for tensor in tensors], strict=True))
        if None in self._is_fresh:
            self._learn(tensors)
        arrays = {}
        addresses: set[int] = set()
        for name, tensor, is_seen, is_fresh in zip(
            self._names, tensors, self._is_seen, self._is_fresh, strict=True
        ):
            if not is_seen:
                arrays[name] = tensor.numpy()
                continue
            array = np.from_dlpack(tensor)
            if is_fresh:
                addresses = addresses or {tensor.data_ptr() for tensor in inputs}
                address = tensor.data_ptr()
                is_fresh = address not in addresses
                addresses.add(address)
            arrays[name] = array if is_fresh else array.copy()
        return arrays

    def _flat(self, result: Any) -> list[Any]:
        """Return the tensors of a tuple; of TVM's, a slice costs a quarter of what its items do."""
        parts = result[:]
        return parts if all(type(part) is self._tensor_type for part in parts) else flatten(parts)

    def _learn(self, tensors: list[Any]) -> None:
        """Compare with the first results, which are kept until now: memory that both share belongs to the model."""
        first = self._first
        if first is None:
            self._first = tensors
            return
        before = {tensor.data_ptr() for tensor in first}
        self._is_fresh = [
            tensor.data_ptr() not in before if known is None else known
            for known, tensor in zip(self._is_fresh, tensors, strict=True)
        ]
        self._first = None


def flatten(value: Any) -> list[Any]:
    """Return the tensors of a result, which may be a tuple of tuples."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [item for part in value for item in flatten(part)]
    return [value]


def numpy_dtype(name: str) -> Any:
    """Return numpy's dtype of this name."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def aligned_empty(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """Return an uninitialised array that every model of a CPU reads without copying it, an old one too."""
    element = np.dtype(dtype)
    size = math.prod(shape) * element.itemsize
    memory = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    array: NDArray[Any] = memory[start : start + size].view(element).reshape(shape)
    return array


def listed(specs: Sequence[Mapping[str, Any]]) -> str:
    """Return inputs or outputs in words, for a message."""
    return ", ".join(f"{spec['name']!r} ({spec['dtype']} {shape_text(spec['shape'])})" for spec in specs)


def _nbytes(spec: Mapping[str, Any]) -> int:
    if None in spec["shape"]:  # it depends on values, and may be large
        return _SMALL_BYTES + 1
    item_bytes = 2 if spec["dtype"] == "bfloat16" else int(numpy_dtype(spec["dtype"]).itemsize)
    return item_bytes * math.prod(int(size) for size in spec["shape"])
