"""The kernel of decision trees: it walks a group of trees in step, so that a walk never waits for a branch or for another tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  (as TVM's own documentation has it)

from tunefarm_tuning.tvm.base.tir import CHECKED_INDICES, CPU_ONLY, IS_SCHEDULED

GROUP = 16
"""Trees that are walked together."""
_OPAQUE = 8  # TVM's pattern of kernels that fuse with nothing
_SHARED_STEPS = 1 << 15
"""Steps of all walks from which threads share the rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forest:
    """Trees as arrays, one element a node.

    A walk goes from a node to its ``child`` if the feature is at least ``low`` and at most ``high``, or if it is NaN and ``missing``
    is set; else to the node behind the child. A leaf is its own child whatever the feature is.

    Attributes:
        features: Column of the input.
        low: None if no node has a lower bound.
        entries: Where the weights of a node begin in ``targets`` and ``weights``; one element more than there are nodes.
        roots: Root of each tree, `GROUP` trees to a group.
        steps: Of each group, the steps of its longest walk.
    """

    features: NDArray[np.int32]
    low: NDArray[Any] | None
    high: NDArray[Any]
    missing: NDArray[np.int8]
    children: NDArray[np.int32]
    entries: NDArray[np.int32]
    targets: NDArray[np.int32]
    weights: NDArray[Any]
    roots: NDArray[np.int32]
    steps: NDArray[np.int32]

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """What the kernel takes behind the rows."""
        bounds = (self.high,) if self.low is None else (self.high, self.low)
        walk = (self.roots, self.steps, self.features, *bounds, self.missing, self.children)
        return (*walk, self.entries, self.targets, self.weights)


def forest_kernel(forest: Forest, rows: Any, columns: int, num_targets: int) -> tirx.PrimFunc:
    """Return the kernel from rows ``[rows, columns]`` and `Forest.arrays` to the sums of weights ``[rows, num_targets]``, for CPUs.

    Args:
        forest: Its sizes, its dtype, and whether it has lower bounds are built in.
        rows: Their number; an expression if it is open.
        columns: More than the largest feature.
        num_targets: More than the largest target.
    """
    dtype = str(forest.weights.dtype)
    is_open = not isinstance(rows, int)
    count = tirx.Var("rows", "int64") if is_open else rows
    is_shared = is_open or rows * int(forest.steps.sum()) * GROUP >= _SHARED_STEPS
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr(
            {"tirx.noalias": True, IS_SCHEDULED: True, "op_pattern": _OPAQUE}
            | {CPU_ONLY: "TreeEnsemble", CHECKED_INDICES: True}
        )
        x = T.arg("x", T.Buffer((count, columns), dtype))
        arguments = [
            T.arg(f"forest{number}", T.Buffer(array.shape, str(array.dtype)))
            for number, array in enumerate(forest.arrays)
        ]
        sums = T.arg("sums", T.Buffer((count, num_targets), dtype))
        with T.sblock("forest"):
            T.reads([_whole(buffer) for buffer in (x, *arguments)])
            T.writes([_whole(sums)])
            with (T.parallel if is_shared and rows != 1 else T.serial)(count) as row, T.sblock("row"):
                T.reads([_whole(buffer) for buffer in (x, *arguments)])
                T.writes([_whole(sums)])
                _write_row(forest, x, arguments, sums, row)
    func: tirx.PrimFunc = builder.get().without_attr("global_symbol")
    return func


def _write_row(forest: Forest, x: Any, arguments: Sequence[Any], sums: Any, row: Any) -> None:
    roots, steps, features, high, *low, missing, children, entries, targets, weights = arguments
    node = T.sblock_alloc_buffer((GROUP,), "int32")
    zero = tirx.const(0, str(forest.weights.dtype))
    with T.serial(sums.shape[1]) as target:
        T.buffer_store(sums, zero, [row, target])
    with T.serial(len(forest.steps)) as group:
        with T.unroll(GROUP) as tree:
            T.buffer_store(node, roots[group * GROUP + tree], [tree])
        with T.serial(steps[group]), T.unroll(GROUP) as tree:
            at = node[tree]
            value = x[row, features[at]]
            is_within = value <= high[at]
            if low:
                is_within = tirx.all(is_within, value >= low[0][at])
            is_child = tirx.any(is_within, tirx.all(missing[at] != 0, tirx.isnan(value)))
            T.buffer_store(node, children[at] + tirx.Select(is_child, 0, 1), [tree])
        with T.serial(GROUP) as tree:
            first = entries[node[tree]]
            with T.serial(entries[node[tree] + 1] - first) as number:
                target = targets[first + number]
                T.buffer_store(sums, sums[row, target] + weights[first + number], [row, target])


def _whole(buffer: Any) -> Any:
    return buffer[tuple(slice(0, size) for size in buffer.shape)]
