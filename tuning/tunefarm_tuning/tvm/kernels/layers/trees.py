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

from tunefarm_tuning.tvm.base.tir import CHECKED_INDICES, CPU_ONLY, IS_SCHEDULED, OPAQUE, prefetch, whole

GROUP = 16
"""Trees that are walked together."""
_ROWS, _BLOCKS = 16, 8
"""Most rows that a group of trees takes before the next group, while caches hold its nodes; fewer, if there were fewer blocks of rows than
threads may want."""
_STEPS = 2
"""Steps of a group, after which it ends if no walk went on in the last one."""
_CHILD, _FEATURE, _HIGH, _LOW = range(4)
_SHARED_STEPS = 1 << 15
"""Steps of all walks from which threads share the rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forest:
    """Trees as arrays.

    A walk goes from a node to its child if the feature is at least the node's low bound and at most its high bound, or if it is NaN and
    ``missing`` is set; else to the node behind the child. A leaf is its own child whatever the feature is.

    Attributes:
        nodes: ``[nodes, 4]``: child, column of the input, high bound, low bound; bounds as bits of the weights' type. What a step reads
            lies in one line of the cache.
        has_low: Whether some node has a low bound.
        missing: An element a node.
        entries: Where the weights of a node begin in ``targets`` and ``weights``; one element more than there are nodes.
        groups: Where each group of trees begins, and the last one ends. Were all of one size, LLVM would unroll the loop over a group's trees
            and gather what they read into vectors, which took twice as long on a Zen 5.
        roots: Root of each tree.
        num_steps: Of the longest walks of all trees together.
    """

    nodes: NDArray[Any]
    has_low: bool
    missing: NDArray[np.int8]
    entries: NDArray[np.int32]
    targets: NDArray[np.int32]
    weights: NDArray[Any]
    groups: NDArray[np.int32]
    roots: NDArray[np.int32]
    num_steps: int

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """What the kernel takes behind the rows."""
        return self.groups, self.roots, self.nodes, self.missing, self.entries, self.targets, self.weights


def packed_nodes(
    children: NDArray[Any], features: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> NDArray[Any]:
    """Return `Forest.nodes`."""
    bits = np.dtype(f"int{8 * high.dtype.itemsize}")
    columns = (children.astype(bits), features.astype(bits), high.view(bits), low.view(bits))
    return np.ascontiguousarray(np.stack(columns, axis=1))


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
    is_shared = is_open or rows * forest.num_steps >= _SHARED_STEPS
    together = _ROWS if is_open else max(1, min(_ROWS, rows // _BLOCKS))
    blocks = tirx.ceildiv(count, together) if is_open else -(-rows // together)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr(
            {"tirx.noalias": True, IS_SCHEDULED: True, "op_pattern": OPAQUE}
            | {CPU_ONLY: "TreeEnsemble", CHECKED_INDICES: True}
        )
        x = T.arg("x", T.Buffer((count, columns), dtype))
        arguments = [
            T.arg(f"forest{number}", T.Buffer(array.shape, str(array.dtype)))
            for number, array in enumerate(forest.arrays)
        ]
        sums = T.arg("sums", T.Buffer((count, num_targets), dtype))
        with T.sblock("forest"):
            T.reads([whole(buffer) for buffer in (x, *arguments)])
            T.writes([whole(sums)])
            with (T.parallel if is_shared and rows != 1 else T.serial)(blocks) as block, T.sblock("rows"):
                T.reads([whole(buffer) for buffer in (x, *arguments)])
                T.writes([whole(sums)])
                _write_rows(forest, x, arguments, sums, block * together, together)
    func: tirx.PrimFunc = builder.get().without_attr("global_symbol")
    return func


def _write_rows(
    forest: Forest, x: Any, arguments: Sequence[Any], sums: Any, start: Any, together: int
) -> None:
    """Write the sums of so many rows from a start; there are fewer at the end."""
    groups, roots, nodes, missing, entries, targets, weights = arguments
    node = T.sblock_alloc_buffer((GROUP,), "int32")
    moved = T.sblock_alloc_buffer((1,), "int32")
    has_nan = T.sblock_alloc_buffer((together,), "int32")
    zero = tirx.const(0, str(forest.weights.dtype))
    own = together if together == 1 else tirx.min(together, sums.shape[0] - start)
    with T.serial(own) as row:
        with T.serial(sums.shape[1]) as target:
            T.buffer_store(sums, zero, [start + row, target])
        T.buffer_store(has_nan, 0, [row])
        with T.serial(x.shape[1]) as column:
            is_nan = tirx.Select(tirx.isnan(x[start + row, column]), 1, 0)
            T.buffer_store(has_nan, has_nan[row] | is_nan, [row])
    with T.serial(len(forest.groups) - 1) as group, T.serial(own) as row:
        first_tree = groups[group]
        trees = groups[group + 1] - first_tree
        with T.serial(trees) as tree:
            T.buffer_store(node, roots[first_tree + tree], [tree])
        T.buffer_store(moved, 1, [0])
        with T.While(moved[0] != 0):
            for _ in range(_STEPS):
                with T.If(has_nan[row] == 0):
                    with T.Then():
                        _step(forest, trees, node, moved, (x, start + row), nodes, None)
                    with T.Else():
                        _step(forest, trees, node, moved, (x, start + row), nodes, missing)
        with T.serial(trees) as tree:
            first = entries[node[tree]]
            with T.serial(entries[node[tree] + 1] - first) as number:
                target = targets[first + number]
                T.buffer_store(
                    sums, sums[start + row, target] + weights[first + number], [start + row, target]
                )


def _step(
    forest: Forest, trees: Any, node: Any, moved: Any, row: tuple[Any, Any], nodes: Any, missing: Any
) -> None:
    """Let each walk take a step; `missing` is None for rows without NaN."""
    dtype = str(forest.weights.dtype)
    x, number = row
    T.buffer_store(moved, 0, [0])
    with T.serial(trees) as tree:
        at = node[tree]
        child = tirx.Cast("int32", nodes[at, _CHILD])
        T.evaluate(prefetch(nodes[child, 0], 3))
        value = x[number, nodes[at, _FEATURE]]
        high, low = (tirx.reinterpret(dtype, nodes[at, bound]) for bound in (_HIGH, _LOW))
        is_within = value <= high
        if forest.has_low:
            is_within = tirx.all(is_within, value >= low)
        if missing is not None:
            is_within = tirx.any(is_within, tirx.all(missing[at] != 0, tirx.isnan(value)))
        following = child + tirx.Select(is_within, 0, 1)
        T.buffer_store(moved, moved[0] | (at ^ following), [0])
        T.buffer_store(node, following, [tree])
