"""Imports TVM in less than half of its time, in processes of ours. ``import tvm`` itself stays as it is for everybody else.

What takes the time, measured on TVM 0.27.0.post1 and tvm-ffi 0.1.14.post1:

- TVM imports the Python side of nine kinds of devices (`TVM_DEVICE_BACKEND_AUTOLOAD` switches it off), of which a process builds for at
  most one: `load_backend`.
- It asks for types and operators that are not there, and catches the error. For the error's traceback, TVM reads the debug information
  of all its libraries: 24 MB, for as long as the process lives.
- Each of fifty modules reads the names of all 2,000 functions.

Afterwards, a third of the time of a schedule's steps would be TVM's check of their arguments' types. It is taken off: what has another type
is refused where it enters TVM's C++, with a worse message.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from tunefarm_tuning.artifact.cuda_runtime import DRIVER, preload_cuda_runtime
from tunefarm_tuning.artifact.entry import load_whole_runtime

_AUTOLOAD = "TVM_DEVICE_BACKEND_AUTOLOAD"
_CPU_KINDS = ("llvm", "c")


def import_tvm() -> None:
    """Import TVM with what CPUs need, and with all of it on a machine that has CUDA's driver.

    It changes nothing if TVM was imported before.

    Raises:
        ImportError: If TVM is not installed, or cannot be loaded.
    """
    if "tvm" in sys.modules:
        return
    preload_cuda_runtime()
    with _without_backends(), _known_types(), _names_read_once():
        importlib.import_module("tvm")
    _leave_types_unchecked()
    with contextlib.suppress(OSError, RuntimeError):  # a network that sorts says itself what it lacks
        load_whole_runtime()


def load_backend(kind: str) -> None:
    """Load what TVM has in Python for a kind of device other than CPUs, if it has something: its namespace in TVMScript, say."""
    from tvm.backend import loader

    if kind not in _CPU_KINDS and importlib.util.find_spec(f"tvm.backend.{kind}") is not None:
        loader.load(kind)


def _leave_types_unchecked() -> None:
    """Take the methods of schedules without TVM's check of types around them."""
    module = sys.modules.get("tvm.s_tir.schedule.schedule")
    if module is None:  # TVM's runtime alone
        return
    for name, method in list(vars(module.Schedule).items()):
        if getattr(method, "__globals__", {}).get("__name__", "").endswith("._type_checker"):
            setattr(module.Schedule, name, method.__wrapped__)


@contextlib.contextmanager
def _without_backends() -> Iterator[None]:
    """Let TVM import no backend during the block, except on a machine that may have a GPU of NVIDIA."""
    before = os.environ.get(_AUTOLOAD)
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        os.environ[_AUTOLOAD] = "0"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_AUTOLOAD, None)
        else:
            os.environ[_AUTOLOAD] = before


@contextlib.contextmanager
def _known_types() -> Iterator[None]:
    """Let TVM find out without an error which types it does not have, during the block."""
    import tvm_ffi

    core = tvm_ffi.core
    registered = tvm_ffi.get_global_func("ffi.GetRegisteredTypeKeys", allow_missing=True)
    look_up = getattr(core, "_object_type_key_to_index", None)
    if registered is None or look_up is None:
        yield
        return
    known: set[str] = set()

    def index_of(key: str) -> int | None:
        if key not in known:
            known.update(map(str, registered()))  # a library that was loaded since has brought some
        index: int | None = look_up(key) if key in known else None
        return index

    with _replaced(core, "_object_type_key_to_index", index_of):
        yield


@contextlib.contextmanager
def _names_read_once() -> Iterator[None]:
    """Let each module of TVM's import read the names of functions only if there are others than at the last time."""
    from tvm_ffi import get_global_func, registry

    names: list[str] = []

    def names_now() -> list[str]:
        name_at = get_global_func("ffi.FunctionListGlobalNamesFunctor")()
        count = name_at(-1)
        if count != len(names):
            names[:] = [name_at(index) for index in range(count)]
        return names

    with _replaced(registry, "list_global_func_names", names_now):
        yield


@contextlib.contextmanager
def _replaced(holder: ModuleType, name: str, value: object) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)
