"""Weight pre-packing: lay out constant weights at compile time in the order in which tuned kernels read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import entry_names, rewrite_main
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel, Packing, kernel_arguments, pack


def prepack_weights(mod: tvm.IRModule, kernels: Mapping[str, PackedKernel]) -> tvm.IRModule:
    """Return a module with some kernels replaced by ones that take packed weights, and with these weights packed.

    Args:
        mod: A lowered module.
        kernels: By the name of the PrimFunc that each replaces. Every call of it passes constants as the packed weights.
    """
    rewritten = rewrite_main(mod, _WeightPrepacker(mod, kernels))
    packed: tvm.IRModule = relax.transform.DeadCodeElimination(entry_names(rewritten))(rewritten)
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
        # By the address of the weight: kernels that take it in one order share the packed weight. The unpacked weight is kept
        # alive beside it, so that no address is used twice.
        self._packed_weights: dict[int, tuple[Any, list[tuple[Packing, Any]]]] = {}

    def visit_call_(self, call: Any) -> Any:
        kernel = call.args[0] if call.args else None
        if not isinstance(kernel, tvm.ir.GlobalVar) or kernel.name_hint not in self._packings:
            return super().visit_call_(call)
        args = [self.visit_expr(arg) for arg in kernel_arguments(call)]
        for number, packing in self._packings[kernel.name_hint].items():
            args[number] = self._packed(args[number], packing)
        return relax.call_tir(self._replaced[kernel.name_hint], args, call.ty_args[0])

    def _packed(self, weight: Any, packing: Packing) -> Any:
        _, known = self._packed_weights.setdefault(weight.value.__chandle__(), (weight, []))
        for other, constant in known:
            if packing.is_same_as(other):
                return constant
        packed = relax.const(pack(weight.value.numpy(), packing), packing.dtype)
        known.append((packing, packed))
        return packed
