"""Lets a compiled network call the parts that ONNX Runtime computes. Needs Python 3.11, apache-tvm and numpy.

This file is also inside every artifact, for `loader.py` there.

The compiled network calls one function, `FUNCTION`, with a part's number and its inputs, wherever it needs the results of a part. The
function finds the parts of the calling thread: those of the artifact that the thread runs (`running`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

if __package__:
    from tunefarm_tuning.artifact.arrays import ALIGNMENT_BYTES, aligned_empty
else:  # beside this file, in the zip
    from tunefarm_arrays import ALIGNMENT_BYTES, aligned_empty  # type: ignore[import-not-found,no-redef]

FUNCTION = "tunefarm.run_part"
"""The function that compiled networks call: ``FUNCTION(number, *inputs)``; a tensor, or an array of several."""
_STATE = "tunefarm_running_parts"
"""Name in `sys.modules` of the state that all copies of this file share: one function serves them all."""
_CPU = 1  # DLPack's number for it


class Parts(Protocol):
    """The parts of one network. Concurrency: any thread."""

    def run(self, number: int, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs of a part."""
        ...


@contextmanager
def running(parts: Parts | None) -> Iterator[None]:
    """Let networks that run in this block, on this thread, call these parts; None if the network has none."""
    if parts is None:
        yield
        return
    current = _shared().current
    before = getattr(current, "parts", None)
    current.parts = parts
    try:
        yield
    finally:
        current.parts = before


def register() -> None:
    """Register `FUNCTION`; networks that call it cannot be loaded before."""
    _shared()


def serve(parts: Parts) -> None:
    """Let networks that run on this thread call these parts from now on."""
    _shared().current.parts = parts


def _shared() -> Any:
    """Return the state that is shared by the copies of this file, with the function that networks call registered."""
    state = sys.modules.get(_STATE)
    if state is None:
        import tvm_ffi

        state = ModuleType(_STATE)
        state.current = threading.local()  # type: ignore[attr-defined]
        # First: another thread may load a network that calls it as soon as the state is there.
        tvm_ffi.register_global_func(FUNCTION, _run_part, override=True)
        state = sys.modules.setdefault(_STATE, state)
    return state


def _run_part(number: int, *tensors: Any) -> Any:
    """Run a part of the artifact that this thread runs."""
    parts = getattr(_shared().current, "parts", None)
    if parts is None:
        raise RuntimeError("the network has parts for ONNX Runtime: run it by its loader")
    device = next((t.device for t in tensors if t.device.dlpack_device_type() != _CPU), None)
    outputs = [_tensor(array, device) for array in parts.run(int(number), [_array(t) for t in tensors])]
    if len(outputs) == 1:
        return outputs[0]
    import tvm_ffi

    return tvm_ffi.Array(outputs)


def _array(tensor: Any) -> NDArray[Any]:
    """Return a tensor's elements, in place where they are on the CPU."""
    if tensor.device.dlpack_device_type() == _CPU:
        return np.from_dlpack(tensor)
    copy: NDArray[Any] = tensor.numpy()
    return copy


def _tensor(array: NDArray[Any], device: Any) -> Any:
    """Return an array as a tensor that compiled kernels can read: contiguous, aligned, on their device; None is the CPU."""
    import tvm
    import tvm_ffi

    if device is not None:
        return tvm.runtime.tensor(array, device)
    if not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT_BYTES:
        aligned = aligned_empty(array.shape, array.dtype)
        aligned[...] = array
        array = aligned
    return tvm_ffi.from_dlpack(array)
