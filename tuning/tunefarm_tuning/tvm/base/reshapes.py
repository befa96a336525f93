"""Kernels that only reshape, which TVM replaces by a view of the same memory."""

from __future__ import annotations

import tvm
from tvm import relax, tirx


def is_reshape(func: tirx.PrimFunc) -> bool:
    """Return whether a kernel only reshapes, as far as TVM can tell."""
    return bool(_told(func))


def _told(func: tirx.PrimFunc) -> bool | None:
    """Return what TVM says of a kernel; None where it fails, as for a transpose of which a size is twice an open one less one."""
    try:
        return bool(relax.analysis.has_reshape_pattern(func))
    except tvm.error.InternalError:
        return None


def view_reshapes(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with views in place of the calls of kernels that only reshape. A kernel that TVM fails at stays as it is.

    So an output can lie in the memory of an input or of another output; artifacts copy such outputs (`artifact.arrays.OutputTaker`).
    """
    unclear = {
        name: func
        for name, func in module.functions.items()
        if isinstance(func, tirx.PrimFunc) and _told(func) is None
    }
    hidden = tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    for name, func in module.functions.items():
        if name in unclear:
            hidden.update_func(name, func.with_body(tirx.Evaluate(tirx.const(0, "int32"))))
        elif isinstance(func, relax.Function) and isinstance(func.body, relax.SeqExpr):
            hidden.update_func(name, _with_named_result(func))
    viewed = relax.transform.RewriteDataflowReshape()(hidden)
    for name, func in unclear.items():
        viewed.update_func(viewed.get_global_var(str(name.name_hint)), func)
    return viewed


def _with_named_result(func: relax.Function) -> relax.Function:
    """Name what the last kernel of a network with one output returns within the dataflow, where alone TVM 0.27 looks for reshapes."""
    last = func.body.blocks[-1] if func.body.blocks else None
    if not isinstance(last, relax.DataflowBlock) or not last.bindings:
        return func
    *bindings, result = last.bindings
    if not isinstance(result, relax.VarBinding) or not isinstance(result.value, relax.Call):
        return func
    if not result.var.same_as(func.body.body):
        return func
    value = relax.DataflowVar(result.var.name, result.var.ty)
    named = relax.DataflowBlock(
        [*bindings, relax.VarBinding(value, result.value), relax.VarBinding(result.var, value)]
    )
    body = relax.SeqExpr([*func.body.blocks[:-1], named], func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
