"""Running a rewriter over a network."""

from __future__ import annotations

from typing import Any

import tvm


def rewritten(mod: tvm.IRModule, rewriter: Any) -> tvm.IRModule:
    """Return a module with its ``main`` as a ``PyExprMutator`` over it leaves it."""
    rewriter.builder_.update_func(mod.get_global_var("main"), rewriter.visit_expr(mod["main"]))
    made: tvm.IRModule = rewriter.builder_.get()
    return made
