"""Add a network for all sizes as one more entry, with the weights that the other entries have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import tvm

from tunefarm_tuning.target.target import Target
from tunefarm_tuning.tvm.base.relax_graph import entry_names
from tunefarm_tuning.tvm.base.tir import IS_SCHEDULED
from tunefarm_tuning.tvm.default_schedules.schedule import (
    NoDefaultSchedule,
    packed_default_schedule,
    packed_default_schedules,
)
from tunefarm_tuning.tvm.kernels.shared_orders import with_shared_orders
from tunefarm_tuning.tvm.kernels.weight_packing import (
    PackedKernel,
    Packing,
    kernel_calls,
    packable_weights,
    with_given_orders,
)
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
    *fixed, last = entry_names(merged)
    defaults = packed_default_schedules(mod, target, without=scheduled)
    kernels = with_shared_orders(mod, {**scheduled, **defaults})
    orders: dict[int, Packing] = {}
    for name, arguments in _calls(merged, fixed):
        if name in kernels:
            for number, packing in kernels[name].packings.items():
                orders[_address(arguments[number])] = packing
    given: dict[str, dict[int, Packing | None]] = {}
    for name, arguments in _calls(merged, [last]):
        weights = given.setdefault(name, {})
        for number in packable_weights(merged[name]):
            order = orders.get(_address(arguments[number]))
            same = number not in weights or _is_same(weights[number], order)
            weights[number] = order if same else None
    for name, weights in given.items():
        known = {number: packing for number, packing in weights.items() if packing is not None}
        if name not in kernels and (packed := _packed(merged[name], target, known)) is not None:
            kernels[name] = packed
    return merged, kernels


def _calls(mod: tvm.IRModule, entries: Sequence[str]) -> Iterator[tuple[str, Sequence[Any]]]:
    for entry in entries:
        yield from kernel_calls(mod[entry].body)


def _packed(func: tvm.tirx.PrimFunc, target: Target, given: Mapping[int, Packing]) -> PackedKernel | None:
    """Return a kernel by default schedule if it takes weights packed; some of them in given orders."""
    if not packable_weights(func) or IS_SCHEDULED in func.attrs:
        return None
    with suppress(NoDefaultSchedule):
        packed = packed_default_schedule(with_given_orders(func, given), target)
        return packed if packed.packings else None
    return None


def _is_same(packing: Packing | None, other: Packing | None) -> bool:
    return packing is other or (packing is not None and other is not None and packing.is_same_as(other))


def _address(weight: Any) -> int:
    """Return what tells a constant from others: equal constants of a merged module are one."""
    return int(weight.value.__chandle__()) if isinstance(weight, tvm.ir.GenericConst) else 0
