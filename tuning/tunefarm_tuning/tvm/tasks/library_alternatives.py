"""Kernels that a library, oneDNN, may compute in place of ours (ADR 0077)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.artifact.onednn_library import ONEDNN
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.default_schedules.schedule import NoDefaultSchedule, default_schedule
from tunefarm_tuning.tvm.kernels.library_products import (
    LibraryProduct,
    library_kernel,
    match_library_product,
    weights_key,
)
from tunefarm_tuning.tvm.kernels.weight_packing import kernel_arguments
from tunefarm_tuning.tvm.tasks.alternatives import Alternative, AlternativeInserter, with_constant_weights
from tunefarm_tuning.tvm.tasks.extract import Kernel, NotTunable, kernel_flops, primfunc_workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryAlternative(Alternative):
    """A library's product. `product` is what the fused kernel consists of."""

    product: LibraryProduct

    def calls(self, inserter: AlternativeInserter, call: Any) -> Any:
        """Return the call of the kernel that calls the library."""
        kernel = inserter.kernel(self.tuned.name, self.tuned.module["main"].without_attr("global_symbol"))
        arguments = list(kernel_arguments(call))
        weights = arguments[self.product.weights]
        key = inserter.constant(weights, ONEDNN, partial(_key_of, weights))
        return relax.call_tir(kernel, [*arguments, key], out_ty=call.ty_args[0])


def find_library_alternatives(
    module: tvm.IRModule, target: Target, besides: Collection[str], weights: Sequence[int] = ()
) -> list[Alternative]:
    """Return the kernels of a prepared module that oneDNN can compute whole, in order of first use.

    Args:
        module: The module.
        target: A CPU for which `codegen.onednn.why_no_calls` gives no reason.
        besides: Names of kernels to leave out.
        weights: As for `primfunc_workloads`.
    """
    kernels = {
        kernel.name: kernel
        for kernel in primfunc_workloads(module, weights)
        if kernel.not_tunable is None and kernel.name not in besides
    }
    products = {
        name: product for name in kernels if (product := match_library_product(module[name])) is not None
    }
    slices = int(str(target.get("num-cores") or 1))
    constant = with_constant_weights(module, {name: product.weights for name, product in products.items()})
    alternatives: list[Alternative] = []
    for name in (name for name in products if name in constant):
        fallback = module[name]
        with suppress(NoDefaultSchedule):
            fallback = default_schedule(fallback, target)
        func = library_kernel(fallback, products[name], slices=slices)
        alternatives.append(
            LibraryAlternative(
                instead_of=name,
                workload_key=kernels[name].workload_key,
                algorithm=ONEDNN,
                library=ONEDNN,
                tuned=Kernel(
                    name=f"{name}_{ONEDNN}",
                    workload_key=f"{kernels[name].workload_key}-{ONEDNN}",
                    module=tvm.IRModule({"main": func.with_attr("global_symbol", "main")}),
                    weight=kernels[name].weight,
                    not_tunable=NotTunable.EXTERN_CALL,
                ),
                direct_flops=kernel_flops(kernels[name].module),
                product=products[name],
            )
        )
    return alternatives


def _key_of(weights: Any) -> Any:
    return weights_key(weights.value.numpy())
