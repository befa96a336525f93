"""TVM modules as JSON text, for storage and for other processes of the same toolchain."""

from __future__ import annotations

import tvm

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
