"""Select the parallel products and convolutions to fuse: those that ``benchmarks/results/combined.md`` measured as faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import relax

from tunefarm_tuning.tvm.base.relax_graph import operator_name
from tunefarm_tuning.tvm.transform.horizontal_fusion.branches import ELEMENTWISE, Block, Branches

Selection = Callable[[Block, Sequence[Any]], list[Any]]
"""Takes a block and the variables of calls that could be fused; returns the variables of the calls to fuse."""

_MAX_EVEN_WIDTH = 32  # two vectors of the widest kind: a tile needs no more
_LONG_SUM = 256  # with so many multiply-adds per element, copying a result costs little
_SMALL_FLOPS = float(1 << 25)  # a larger kernel gains nothing by fusion


def select_none(_block: Block, _roots: Sequence[Any]) -> list[Any]:
    """Select no calls."""
    return []


def select_faster(block: Block, roots: Sequence[Any]) -> list[Any]:
    """Select branches that are faster as one kernel on a CPU.

    Either the joint result splits better into vectors than any branch's, and this gains more than the slices cost.
    Or the branches are small products, and the kernels that read them copy them anyway.
    """
    fused = block.branches(roots)
    if _evenness_gain(fused.widths) > 0 and _sum_length(fused) >= _LONG_SUM:
        return list(roots)
    copied = _copied_anyway(block, roots)
    if not copied:
        return []
    fused = block.branches(copied)
    is_small = fused.is_product and _flops(fused) <= _SMALL_FLOPS
    gain = _evenness_gain(fused.widths)
    if gain > 0 or (is_small and gain >= 0):
        return copied
    return []


def select_read_in_place(block: Block, roots: Sequence[Any]) -> list[Any]:
    """Select products of any size if the kernels after them can read the joint result without further kernels."""
    copied = _copied_anyway(block, roots)
    return copied if copied and block.branches(copied).is_product else []


def _copied_anyway(block: Block, roots: Sequence[Any]) -> list[Any]:
    """Return the branches whose slice of the joint result an existing kernel can read; none if fewer than two."""
    candidates = list(roots)
    while len(candidates) > 1:
        branches = block.branches(candidates)
        copied = [
            root
            for root, values in zip(candidates, branches.values, strict=True)
            if _is_copied(block, values[-1], branches)
        ]
        if len(copied) == len(candidates):
            return candidates
        candidates = copied
    return []


def _is_copied(block: Block, var: Any, branches: Branches) -> bool:
    """Return whether a variable has a single reader that exists in any case and can begin with a slice."""
    readers = block.readers(var)
    if len(readers) != 1 or not isinstance(var, relax.DataflowVar):
        return False
    call = block.value(readers[0])
    name = operator_name(call)
    if name == "relax.concat":
        return True
    if name == "relax.permute_dims":
        # the transpose of a convolution's result may cancel its change of layout
        return branches.is_product and _moves_elements(call)
    if name == "relax.reshape" or (name in ELEMENTWISE and _reads_only(call, var)):
        return _is_copied(block, readers[0], branches)
    return False


def _reads_only(call: Any, var: Any) -> bool:
    return all(not isinstance(argument, relax.Var) or argument == var for argument in call.args)


def _moves_elements(call: Any) -> bool:
    """Return whether a transpose is more than a reshape."""
    rank = len(call.ty.shape)
    axes = range(rank)[::-1] if call.attrs.axes is None else [int(axis) % rank for axis in call.attrs.axes]
    long_axes = [axis for axis in axes if int(call.args[0].ty.shape[axis]) > 1]
    return long_axes != sorted(long_axes)


def _evenness_gain(widths: Sequence[int]) -> int:
    """Return how many more factors of two the joint width has than any branch's; below 0 if fewer."""
    return _evenness(sum(widths)) - max(_evenness(width) for width in widths)


def _evenness(width: int) -> int:
    """Return the largest power of two that divides a width, up to a limit."""
    return min(width & -width, _MAX_EVEN_WIDTH)


def _sum_length(branches: Branches) -> int:
    """Return the number of products per element of a result."""
    return prod(int(size) for size in branches.calls[0].args[1].ty.shape) // branches.widths[0]


def _flops(branches: Branches) -> float:
    results = sum(prod(int(size) for size in call.ty.shape) for call in branches.calls)
    return 2.0 * results * _sum_length(branches)
