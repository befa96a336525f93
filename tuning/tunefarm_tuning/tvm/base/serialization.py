"""TVM modules as JSON text, and TVM's containers as plain Python values, for storage and for other processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi

from tunefarm_tuning.core.errors import InvalidInputError


def module_to_text(mod: tvm.IRModule) -> str:
    """Return the module as JSON. Equal text is not promised for equal modules: compare workload keys."""
    return str(tvm.ir.save_json(mod))


def module_from_text(text: str) -> tvm.IRModule:
    """Read what `module_to_text` wrote with this very version of TVM.

    Raises:
        InvalidInputError: If it is not a module (of this version).
    """
    try:
        mod = tvm.ir.load_json(text)
    except Exception as error:
        raise InvalidInputError(
            f"not a TVM {tvm.__version__} module: {str(error)[:200]}", code="invalid-ir"
        ) from error
    if not isinstance(mod, tvm.IRModule):
        raise InvalidInputError(f"not a TVM module but a {type(mod).__name__}", code="invalid-ir")
    return mod


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
