"""`build_child` as on a machine with a GPU: TVM asks its CUDA runtime to make modules of CUDA C."""

from __future__ import annotations

from typing import Any, NoReturn

import tvm_ffi

from tunefarm_tuning.tvm.children import build as build_child


def create(*_: Any) -> NoReturn:
    raise RuntimeError("TVM compiles CUDA C itself")


tvm_ffi.register_global_func("ffi.Module.create.cuda", create, override=True)

HANDLERS = build_child.HANDLERS
