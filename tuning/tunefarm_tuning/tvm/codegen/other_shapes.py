"""Add a network for all sizes as one more entry, with the weights that the other entries have."""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.codegen.scheduled_build import with_packed_defaults
from tunefarm_tuning.tvm.kernels.weight_packing import PackedKernel
from tunefarm_tuning.tvm.transform.merge_entries import add_entry


def with_other_shapes(
    mod: tvm.IRModule, open_module: tvm.IRModule, scheduled: Mapping[str, PackedKernel], target: Target
) -> tuple[tvm.IRModule, dict[str, PackedKernel]]:
    """Add a network for all sizes as the last entry of a module, which has it for some sizes.

    Its kernels read their weights in the orders in which the other kernels do, so that no weight is stored twice.

    Args:
        mod: The network for some sizes.
        open_module: The same for all sizes: `OpenNetwork.module`.
        scheduled: Scheduled kernels of `mod`, by name.
        target: The target.

    Returns:
        The module, and its scheduled kernels: those given, and all others that take packed weights.
    """
    merged = add_entry(mod, open_module)
    return merged, with_packed_defaults(merged, with_packed_defaults(mod, scheduled, target), target)
