"""Child processes for the dangerous work: everything that imports TVM or ONNX, or reads a stranger's model.

A child is ``python -m tunefarm_tuning.process MODULE``. The module has a table ``HANDLERS`` (`Handlers`); the parent calls its
functions by name over a pipe. A child that crashes, hangs or eats memory costs one call: its caller gets a `ChildFailed`, and the
next call starts a fresh one.

A handler takes its parameters as one object and returns its answer, both JSON values. It raises a `TunefarmError` to have the
caller get the same error; any other exception reaches the caller as an `InvariantError`.

- A call: `child` starts a `running` child under its `limits`, or takes one that is `warm`; `errors` says how it ended. `model_child` has
  the limits of reading a stranger's model.
- What a child may do: `sandbox` sets up `landlock`, `seccomp` and `kernel_settings`; `disk_watch` bounds what it writes; `lifeline` ends it
  with its parent, and `scratch` deletes what is left.
- Its way to a device: a `device_address`, over a `tunnel` to the gateway, through the `relay`. `listening` is for servers.
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
