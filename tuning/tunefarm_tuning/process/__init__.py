"""Child processes that do the dangerous work: everything that imports TVM, ONNX or a stranger's model.

A child is ``python -m tunefarm_tuning.process MODULE``. The module has a table ``HANDLERS`` of functions that
take and return JSON-able values; the parent calls them by name over a pipe. A child that crashes, hangs or
eats memory costs one call: its caller gets a `ChildFailed`, and the next call starts a fresh one.
"""

from __future__ import annotations

from tunefarm_tuning.process.child import ChildProcess, call_in_child
from tunefarm_tuning.process.errors import (
    ChildClosed,
    ChildCrashed,
    ChildFailed,
    ChildOutOfMemory,
    ChildTimedOut,
)
from tunefarm_tuning.process.limits import ChildLimits

__all__ = [
    "ChildClosed",
    "ChildCrashed",
    "ChildFailed",
    "ChildLimits",
    "ChildOutOfMemory",
    "ChildProcess",
    "ChildTimedOut",
    "call_in_child",
]
