"""Which parallel products and convolutions are combined: those for which ``benchmarks/results/combined.md`` is in favour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import tvm
from tvm import relax

from tunefarm_tuning.tvm.transform.combine_branches import ELEMENTWISE, Block, Branches

Choose = Callable[[Block, Sequence[Any]], list[Any]]
"""From a block and the variables of calls that could be one to those of them that become one."""

_MOST_EVEN = 32  # two vectors of the widest kind: a tile needs no more
_LONG_SUM = 256  # what takes so many multiply-adds is copied at little cost
_SMALL_FLOPS = float(1 << 25)  # what takes longer gains nothing by being one call


def never(_block: Block, _roots: Sequence[Any]) -> list[Any]:
    """Choose none."""
    return []


def where_it_pays(block: Block, roots: Sequence[Any]) -> list[Any]:
    """Choose branches that are faster as one.

    Either all results side by side split better into vectors than those of any branch do, and cutting them apart costs less than
    that gains. Or they are small products, copied by what reads them anyway.
    """
    together = block.branches(roots)
    if _is_more_even(together.widths) and _sum_length(together) >= _LONG_SUM:
        return list(roots)
    copied = _copied_anyway(block, roots)
    if not copied:
        return []
    together = block.branches(copied)
    is_small = together.is_product and _flops(together) <= _SMALL_FLOPS
    if _is_more_even(together.widths) or (is_small and _is_as_even(together.widths)):
        return copied
    return []


def in_place(block: Block, roots: Sequence[Any]) -> list[Any]:
    """Choose products of any size that are read where they are made, by kernels that there would be without them."""
    copied = _copied_anyway(block, roots)
    return copied if copied and block.branches(copied).is_product else []


def _copied_anyway(block: Block, roots: Sequence[Any]) -> list[Any]:
    """Return those branches that can be read in place by a kernel that there would be without them, if they are two or more."""
    left = list(roots)
    while len(left) > 1:
        branches = block.branches(left)
        kept = [
            root
            for root, values in zip(left, branches.values, strict=True)
            if _is_copied(block, values[-1], branches)
        ]
        if len(kept) == len(left):
            return left
        left = kept
    return []


def _is_copied(block: Block, var: Any, branches: Branches) -> bool:
    """Whether one kernel alone reads a variable, would be there anyway, and can begin with a slice."""
    readers = block.readers(var)
    if len(readers) != 1 or not isinstance(var, relax.DataflowVar):
        return False
    call = block.value(readers[0])
    if not isinstance(call, tvm.ir.Call) or not isinstance(call.op, tvm.ir.Op):
        return False
    name = call.op.name
    if name == "relax.concat":
        return True
    if name == "relax.permute_dims":
        # That of a convolution's result may be what cancels its change of layout.
        return branches.is_product and _moves(call)
    if name == "relax.reshape" or (name in ELEMENTWISE and _reads_only(call, var)):
        return _is_copied(block, readers[0], branches)
    return False


def _reads_only(call: Any, var: Any) -> bool:
    return all(not isinstance(argument, relax.Var) or argument == var for argument in call.args)


def _moves(call: Any) -> bool:
    """Whether a transposition is no mere reshape."""
    rank = len(call.ty.shape)
    axes = range(rank)[::-1] if call.attrs.axes is None else [int(axis) % rank for axis in call.attrs.axes]
    long = [axis for axis in axes if int(call.args[0].ty.shape[axis]) > 1]
    return long != sorted(long)


def _is_more_even(widths: Sequence[int]) -> bool:
    return _evenness(sum(widths)) > max(_evenness(width) for width in widths)


def _is_as_even(widths: Sequence[int]) -> bool:
    return _evenness(sum(widths)) >= max(_evenness(width) for width in widths)


def _evenness(width: int) -> int:
    """Return the largest power of two that divides a width, up to a limit."""
    return min(width & -width, _MOST_EVEN)


def _sum_length(branches: Branches) -> int:
    """Return how many products each result is the sum of."""
    return prod(int(size) for size in branches.calls[0].args[1].ty.shape) // branches.widths[0]


def _flops(branches: Branches) -> float:
    results = sum(prod(int(size) for size in call.ty.shape) for call in branches.calls)
    return 2.0 * results * _sum_length(branches)
