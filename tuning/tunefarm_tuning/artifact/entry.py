"""An entry of a loaded library, with the virtual machines that run it. Needs Python 3.11, apache-tvm and numpy.

This file is also inside every artifact, for `loader.py` there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

if __package__:
    from tunefarm_tuning.artifact.arrays import InputSlot, OutputTaker
    from tunefarm_tuning.artifact.container import LIBRARY, ArtifactError
    from tunefarm_tuning.artifact.specialisations import Specialisation
else:  # beside this file, in the zip
    from container import LIBRARY, ArtifactError  # type: ignore[import-not-found,no-redef]
    from tunefarm_arrays import InputSlot, OutputTaker  # type: ignore[import-not-found,no-redef]
    from tunefarm_specialisations import Specialisation  # type: ignore[import-not-found,no-redef]

TVM_ERRORS = (RuntimeError, OSError, ValueError, TypeError, LookupError, AttributeError)
"""What TVM raises."""


class Entry:
    """One specialisation of the library. Concurrency: any thread.

    Attributes:
        outputs: Converts its results.
        idle: Virtual machines that no call uses at the moment; there are as many as there were calls at the same time.
    """

    def __init__(self, item: Specialisation, library: Any, device: Any) -> None:
        self._item = item
        self._library = library
        self._device = device
        self.outputs = OutputTaker(item.outputs, device)
        self.idle: list[Machine] = []

    def add_machine(self) -> None:
        """Make a machine ahead of the calls.

        Raises:
            ArtifactError: damaged-artifact, if the library cannot be used, or has no such entry.
        """
        self.idle.append(self.make_machine())

    def check_has(self, entry: str) -> None:
        """Check that the library has another entry, without a machine for it.

        Raises:
            ArtifactError: damaged-artifact.
        """
        try:
            self.idle[0].find(entry)
        except TVM_ERRORS as error:
            raise _damaged(error) from error

    def take_machine(self) -> Machine:
        """Return an idle machine, or a new one."""
        try:
            return self.idle.pop()
        except IndexError:
            return self.make_machine()

    def make_machine(self) -> Machine:
        """Return a new machine."""
        try:
            return Machine(self._library, self._item, self._device)
        except TVM_ERRORS as error:
            raise _damaged(error) from error


class Machine:
    """TVM's virtual machine and the input buffers of one entry. Concurrency: none; one call at a time uses it."""

    def __init__(self, library: Any, item: Specialisation, device: Any) -> None:
        from tvm.runtime import vm  # tvm.relax needs the compiler

        self._vm = vm.VirtualMachine(library, device)
        self._device = device
        self._name = item.entry
        self.takers = [InputSlot(spec, device, unaligned=item.unaligned_inputs).take for spec in item.inputs]
        self.function = self.find(item.entry)

    def find(self, entry: str) -> Any:
        """Return one of the library's functions."""
        return self._vm[entry]

    def time(self, tensors: Sequence[Any], repeat: int, number: int | None) -> list[float]:
        """Return `repeat` samples of seconds per call, each of `number` calls (None: as many as take 50 ms)."""
        self.function(*tensors)
        started = time.perf_counter()
        self.function(*tensors)
        self._device.sync()
        first_sec = time.perf_counter() - started
        if number is None:
            number = max(1, min(10_000, int(0.05 / max(first_sec, 1e-6))))
        timer = self._vm.time_evaluator(self._name, self._device, number=number, repeat=repeat)
        return [float(sample) for sample in timer(*tensors).results]


_GPU_TURNS = threading.RLock()


def turns_on(kind: str) -> AbstractContextManager[Any]:
    """Return what a call holds on a device of a kind. Models of a process take turns on a GPU.

    A first call captures CUDA graphs. Meanwhile CUDA allows no other thread of the process to take memory or to copy.
    """
    return _GPU_TURNS if kind == "cuda" else nullcontext()


def load_whole_runtime() -> None:
    """Load what sorts and fills arrays with random numbers, which kernels may call. TVM's import does it with all its backends alone.

    Raises:
        OSError: If it cannot be loaded.
        RuntimeError: If it is not there.
    """
    import tvm
    from tvm_ffi.libinfo import load_lib_ctypes

    if tvm.get_global_func("tvm.contrib.sort.argsort", allow_missing=True) is None:
        folders = tvm.libinfo.package_lib_paths()
        load_lib_ctypes("tvm", "tvm_runtime_extra", "RTLD_LOCAL", extra_lib_paths=folders)


def last_line(error: Exception) -> str:
    """Return the last line of TVM's message: a C++ stack trace may come before it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _damaged(error: Exception) -> ArtifactError:
    return ArtifactError(f"{LIBRARY} cannot be loaded: {last_line(error)}", code="damaged-artifact")
