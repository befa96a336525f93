"""Weight pre-packing: lay out constant weights at compile time in the order in which tuned kernels read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import rewrite_main
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, Packing, kernel_arguments, pack


def prepack_weights(mod: tvm.IRModule, kernels: Mapping[str, PackedKernel]) -> tvm.IRModule:
    """Return a module with some kernels replaced by ones that take packed weights, and with these weights packed.

    Args:
        mod: A lowered module.
        kernels: By the name of the PrimFunc that each replaces. Every call of it passes constants as the packed weights.
    """
    rewritten = rewrite_main(mod, _WeightPrepacker(mod, kernels))
    packed: tvm.IRModule = relax.transform.DeadCodeElimination(["main"])(rewritten)
    return packed


@relax.expr_functor.mutator
class _WeightPrepacker(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, kernels: Mapping[str, PackedKernel]) -> None:
        super().__init__(mod)
        self._packings = {name: kernel.packings for name, kernel in kernels.items()}
        # New functions: the callers of the old ones would not fit the new types.
        self._replaced = {
            name: self.builder_.add_func(kernel.func, f"{name}_packed") for name, kernel in kernels.items()
        }
        # By the address of the weight, the kernel and the argument: calls of one kernel share the packed weight. The unpacked
        # weight is kept alive beside it, so that no address is used twice.
        self._packed_weights: dict[tuple[int, str, int], tuple[Any, Any]] = {}

    def visit_call_(self, call: Any) -> Any:
        kernel = call.args[0] if call.args else None
        if not isinstance(kernel, tvm.ir.GlobalVar) or kernel.name_hint not in self._packings:
            return super().visit_call_(call)
        args = [self.visit_expr(arg) for arg in kernel_arguments(call)]
        for number, packing in self._packings[kernel.name_hint].items():
            args[number] = self._packed(args[number], kernel.name_hint, number, packing)
        return relax.call_tir(self._replaced[kernel.name_hint], args, call.ty_args[0])

    def _packed(self, weight: Any, kernel: str, number: int, packing: Packing) -> Any:
        key = (weight.value.__chandle__(), kernel, number)
        if key not in self._packed_weights:
            packed = pack(weight.value.numpy(), packing)
            self._packed_weights[key] = (weight, relax.const(packed, packing.dtype))
        return self._packed_weights[key][1]
