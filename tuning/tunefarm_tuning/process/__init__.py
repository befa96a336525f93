"""Child processes for the dangerous work: everything that imports TVM or ONNX, or reads a stranger's model.

A child is ``python -m tunefarm_tuning.process MODULE``. The module has a table ``HANDLERS`` (`Handlers`); the parent calls its
functions by name over a pipe. A child that crashes, hangs or eats memory costs one call: its caller gets a `ChildFailed`, and the
next call starts a fresh one.

A handler takes its parameters as one object and returns its answer, both JSON values. It raises a `TunefarmError` to have the
caller get the same error; any other exception reaches the caller as an `InvariantError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tunefarm_tuning.process.child import ChildProcess, call_in_child
from tunefarm_tuning.process.errors import (
    ChildClosed,
    ChildCrashed,
    ChildFailed,
    ChildOutOfDisk,
    ChildOutOfMemory,
    ChildTimedOut,
)
from tunefarm_tuning.process.limits import ChildLimits
from tunefarm_tuning.process.running import in_background
from tunefarm_tuning.process.sandbox import Access
from tunefarm_tuning.process.warm import EarlyChild

Handler = Callable[[dict[str, Any]], Any]
Handlers = Mapping[str, Handler]
"""The functions that a child module offers, by the name that the parent calls."""

__all__ = [
    "Access", "ChildClosed", "ChildCrashed", "ChildFailed", "ChildLimits", "ChildOutOfDisk", "ChildOutOfMemory",
    "ChildProcess", "ChildTimedOut", "EarlyChild", "Handler", "Handlers", "call_in_child", "in_background",
]  # fmt: skip
