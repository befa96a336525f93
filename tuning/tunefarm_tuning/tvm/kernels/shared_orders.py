"""Weights that several kernels take packed: one order serves all of them, so that no weight is stored twice.

The kernels of a network in several sets of shapes take the same weights, each in the order that its own schedule packs them in. A
kernel whose vectors lie side by side in another's order reads it there instead. All that changes is from where a tile is read.

The kernel with the smallest output leads: it reads each weight only once, and waits for it, while a kernel with many rows finds
its weights in the cache in any order. A kernel whose vectors would be torn apart in the leader's order keeps its own.

Half a cache line is too little for a leader where the weight's rows have a multiple of 1,024 floats, and the input's with them: of AVX2's
8 columns, a tile of 16 reads two panels beside its rows, all of which fall into one set of the first cache. Encoders at batch 1 took
1.15 times as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import s_tir, tirx

from tunefarm_tuning.core.array_file import numpy_dtype
from tunefarm_tuning.tvm.base.relax_graph import entry_names
from tunefarm_tuning.tvm.base.tir import walk
from tunefarm_tuning.tvm.kernels.weight_packing import (
    PackedKernel,
    Packing,
    all_kernel_calls,
    contiguous_run,
    packable_weights,
)

_LINE_BYTES = 64
_SET_BYTES = 4096
"""Lines so far apart fall into one set of the first cache, on all CPUs with pages of this size."""


def with_shared_orders(module: tvm.IRModule, kernels: Mapping[str, PackedKernel]) -> dict[str, PackedKernel]:
    """Return scheduled kernels by name, some of which read a weight in the order of another.

    Args:
        module: The network, which calls the kernels. Kernels of one set of shapes are returned unchanged.
        kernels: Scheduled kernels by name.
    """
    if len(entry_names(module)) < 2:
        return dict(kernels)
    weights: dict[tuple[str, int], list[int]] = {}
    for name, args in all_kernel_calls(module):
        for number in kernels[name].packings if name in kernels else ():
            if (address := _address(args[number])) is not None:
                weights.setdefault((name, number), []).append(address)
    runs = {
        (name, number): contiguous_run(packing.index_map, packing.shape)
        for name, number in weights
        if not (packing := kernels[name].packings[number]).is_padded
    }
    leaders: dict[int, tuple[str, int]] = {}
    result = dict(kernels)
    for name, number in sorted(
        runs,
        key=lambda at: (
            _splits_lines(kernels[at[0]].packings[at[1]], runs[at]),
            _output_elements(kernels[at[0]].func),
            -runs[at],
            at,
        ),
    ):
        addresses = weights[name, number]
        given = [leaders[address] for address in addresses if address in leaders]
        if not given:
            leaders |= dict.fromkeys(addresses, (name, number))
            continue
        present = kernels[name].packings[number]
        order, *others = (kernels[leader].packings[argument] for leader, argument in given)
        if (
            len(given) == len(addresses)
            and runs[name, number] > 1
            and _side_by_side(kernels[name].func, number, runs[name, number]) <= runs[given[0]]
            and all(other.is_same_as(order) for other in others)
            and not present.is_same_as(order)
            and (present.shape, present.dtype) == (order.shape, order.dtype)
        ):
            result[name] = in_order(result[name], number, order)
    return result


def given_orders(module: tvm.IRModule, kernels: Mapping[str, PackedKernel]) -> dict[str, dict[int, Packing]]:
    """Return the orders in which scheduled kernels have the weights of the others, by these others' names and arguments.

    An argument is left out if its calls give it weights in several orders, or in none.

    Args:
        module: The network, which calls the kernels.
        kernels: Scheduled kernels by name.
    """
    orders: dict[int, Packing] = {}
    others: dict[tuple[str, int], list[int | None]] = {}
    for name, args in all_kernel_calls(module):
        if name in kernels:
            for number, packing in kernels[name].packings.items():
                if (address := _address(args[number])) is not None:
                    orders.setdefault(address, packing)
        else:
            for number in packable_weights(module[name]):
                others.setdefault((name, number), []).append(_address(args[number]))
    given: dict[str, dict[int, Packing]] = {}
    for (name, number), addresses in others.items():
        first, *rest = (None if address is None else orders.get(address) for address in addresses)
        if first is not None and all(order is not None and order.is_same_as(first) for order in rest):
            given.setdefault(name, {})[number] = first
    return given


def in_order(kernel: PackedKernel, number: int, order: Packing) -> PackedKernel:
    """Return a kernel that reads a packed weight in another order; the kernel itself if TVM cannot rewrite it.

    Args:
        kernel: A scheduled kernel.
        number: The index of the weight among its arguments.
        order: Of the same weight.
    """
    packing = kernel.packings[number]
    unpacked = packing.index_map.inverse(list(packing.shape))
    moved = tirx.IndexMap.from_func(
        lambda *at: list(order.index_map.map_indices(unpacked.map_indices(list(at)))),
        ndim=len(packing.packed_shape),
        index_dtype="int64",
    )
    schedule = s_tir.Schedule(tvm.IRModule({"main": kernel.func}))
    reader = _reader(kernel.func.body, kernel.func.params[number])
    if reader is None:
        return kernel
    name, position = reader
    try:
        schedule.transform_layout(
            schedule.get_sblock(name), ("read", position), moved, assume_injective_transform=True
        )
    except s_tir.ScheduleError:
        return kernel
    return PackedKernel(func=schedule.mod["main"], packings={**kernel.packings, number: order})


def _reader(body: Any, buffer: Any) -> tuple[str, int] | None:
    """Return the name of a block in a statement that reads a buffer, and the buffer's position among what it reads."""
    for node in walk(body):
        if isinstance(node, tvm.s_tir.SBlock) and node.name_hint != "root":
            for position, region in enumerate(node.reads):
                if region.source.same_as(buffer):
                    return str(node.name_hint), position
    return None


def _splits_lines(packing: Packing, run: int) -> bool:
    """Return whether runs are shorter than a cache line, and as far apart as rows that all fall into one set of the first cache."""
    element_bytes = numpy_dtype(packing.dtype).itemsize
    depth = math.prod(packing.packed_shape[1:]) // run
    return run * element_bytes < _LINE_BYTES and depth * element_bytes % _SET_BYTES == 0


def _side_by_side(func: tirx.PrimFunc, number: int, run: int) -> int:
    """Return how many elements of a weight have to lie side by side for a kernel: those of its vector, or all that do so."""
    lanes = [
        int(loop.extent)
        for loop in walk(func.body)
        if isinstance(loop, tirx.For)
        and loop.kind == tirx.ForKind.VECTORIZED
        and _reader(loop.body, func.params[number]) is not None
    ]
    return min(run, max(lanes, default=run))


def _address(argument: Any) -> int | None:
    """Return what tells a constant from others, as equal constants of a module are one; None for what is no constant."""
    return int(argument.value.__chandle__()) if isinstance(argument, tvm.ir.GenericConst) else None


def _output_elements(func: tirx.PrimFunc) -> float:
    """Return how many elements a kernel writes; infinity if that is not known before it runs."""
    sizes = func.params[-1].ty.shape
    return math.prod(map(int, sizes)) if all(isinstance(size, tirx.IntImm) for size in sizes) else math.inf
