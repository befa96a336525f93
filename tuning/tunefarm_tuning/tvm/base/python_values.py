"""TVM's containers as plain Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi


def to_plain(value: Any) -> Any:
    """Return a JSON-able copy: dicts, lists, strings, numbers."""
    if isinstance(value, Mapping | tvm_ffi.Map):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Sequence | tvm_ffi.Array):
        return [to_plain(item) for item in value]
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) or value is None:
        return value
    raise TypeError(f"no plain form for {type(value).__name__}")
