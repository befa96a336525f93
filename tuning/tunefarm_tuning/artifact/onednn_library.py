"""Loads oneDNN, the library that some kernels of an artifact call. Needs Python 3.11 alone.

This file is also inside every artifact, for `loader.py` there. The kernels find the library by its name, once it is loaded. Without it they
run loops of their own, which may be slower.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

ONEDNN = "onednn"
"""Its name in manifests, in reports and in what devices say; TVM's targets call it ``dnnl``."""
_NAME = "libdnnl.so.3"
_PACKAGES = ("onednn-cpu-gomp", "onednn-cpu-iomp", "onednn")


class LibraryWarning(UserWarning):
    """A library that kernels of the artifact call is not installed, or another version than they were timed with."""


def load_kernel_libraries(wanted: dict[str, str]) -> None:
    """Load the libraries that an artifact's manifest names with their versions; warn of those that are missing.

    The artifact runs all the same.
    """
    if ONEDNN in wanted and not load_onednn():
        warnings.warn(
            f"kernels of the artifact call oneDNN (timed with {wanted[ONEDNN]}), which is not installed: they run loops of their own, "
            "which may be slower (pip install 'tunefarm[onednn]')",
            LibraryWarning,
            stacklevel=4,
        )


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))


@cache
def load_onednn() -> str:
    """Load oneDNN 3 for this process; return its version, empty if it is not installed or cannot be loaded.

    It is the file of an installed package, or the system's (``LD_LIBRARY_PATH``).
    """
    for path in _paths():
        try:
            library = ctypes.CDLL(path)
            version = library.dnnl_version
        except (OSError, AttributeError):
            continue
        version.restype = ctypes.POINTER(_Version)
        known = version().contents
        return f"{known.major}.{known.minor}.{known.patch}"
    return ""


def _paths() -> list[str]:
    installed = [Path(sys.prefix, "lib", _NAME)]
    for package in _PACKAGES:
        try:
            installed += [Path(file.locate()) for file in files(package) or () if file.name == _NAME]
        except PackageNotFoundError:
            continue
    return [*(str(path) for path in installed if path.exists()), _NAME]
