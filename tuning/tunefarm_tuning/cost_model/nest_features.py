"""Features of a tiled loop nest that mean the same for every workload: iterations, bytes accessed and reuse of each level.

They are computed from a config's tile factors and the workload's `Computation`, without TVM: level by level, from the nest to its
innermost block. So trials of one convolution tell something about another, or about a matrix product.

Source: the features follow Ansor's (Zheng et al., OSDI 2020, section 5.2), computed from the schedule's decisions
instead of the lowered program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tunefarm_tuning.cost_model.base import FloatArray
from tunefarm_tuning.space.config import KnobKind
from tunefarm_tuning.space.config_space import ConfigSpace, Sketch
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.workload.computation import Access, Computation

_ALIGNED_AXES = 3
"""Axes of each kind that have columns of their own, from the innermost outwards: channel, width, height of image or window."""

_PRIOR_REGISTERS = 32
"""Vector registers of the CPUs on which the prior was fitted."""

_READS = 2
_INNER_LEVELS = 3
"""Levels whose loops may be unrolled, from the innermost outwards."""


class NestFeatures:
    """Turns rows of one config space into features that can be compared between spaces of the same `structure`.

    Attributes:
        names: One per column; the same for all spaces with one nesting structure. Empty if the computation is unknown.
    """

    def __init__(self, space: ConfigSpace) -> None:
        structures = {sketch.structure for sketch in space.sketches if sketch.structure}
        self._space = space
        self._structure = min(structures, default="") if space.computation is not None else ""
        self.names: tuple[str, ...] = tuple(_names(self._structure)) if self._structure else ()

    def __call__(self, rows: IntArray) -> FloatArray:
        """Return the features of rows; NaN for sketches that tile nothing. Shape ``(n, len(names))``."""
        features = np.full((len(rows), len(self.names)), np.nan, dtype=np.float32)
        if not self.names:
            return features
        for number, nest in enumerate(self._nests):
            if nest is not None:
                chosen = np.flatnonzero(rows[:, 0] == number)
                if len(chosen):
                    features[chosen] = nest(rows[chosen])
        return features

    @cached_property
    def _nests(self) -> list[_SketchNest | None]:
        computation = self._space.computation
        assert computation is not None
        return [
            _SketchNest(sketch, computation) if sketch.structure == self._structure else None
            for sketch in self._space.sketches
        ]


class _SketchNest:
    """The loop nest of a sketch; values that do not depend on the config are computed once."""

    def __init__(self, sketch: Sketch, computation: Computation) -> None:
        self._levels = len(sketch.structure)
        self._computation = computation
        self._epilogue_level = sketch.epilogue_level
        kinds = [axis.reduces for axis in computation.axes]
        self._space_axes = [i for i, reduces in enumerate(kinds) if not reduces]
        self._reduction_axes = [i for i, reduces in enumerate(kinds) if reduces]
        self._level_axes = [
            self._reduction_axes if kind == "R" else self._space_axes for kind in sketch.structure
        ]
        self._tables: list[
            tuple[int, int, list[int], FloatArray]
        ] = []  # column, axis, levels, log2 of factors
        self._unroll: tuple[int, FloatArray] | None = None
        self._location: tuple[int, FloatArray] | None = None
        for column, (knob, axis) in enumerate(zip(sketch.knobs, sketch.axes, strict=True), start=1):
            if knob.kind is KnobKind.TILE and axis >= 0:
                kind = "R" if kinds[axis] else "S"
                levels = [level for level, level_kind in enumerate(sketch.structure) if level_kind == kind]
                if len(levels) == knob.parts:
                    self._tables.append((column, axis, levels, np.log2(knob.table).astype(np.float32)))
            elif knob.kind is KnobKind.CATEGORICAL and self._unroll is None:
                self._unroll = column, np.log2(1 + np.maximum(np.array(knob.values, dtype=np.float32), 0))
            elif knob.kind is KnobKind.LOCATION and self._location is None:
                self._location = (
                    column,
                    np.array([self._level_of_loop(int(v)) for v in knob.values], np.float32),
                )
        reads = [access for access in computation.accesses if not access.writes][:_READS]
        writes = [access for access in computation.accesses if access.writes][:1]
        self._accesses: list[Access | None] = [*reads, *([None] * (_READS - len(reads))), *writes]
        self._strides, self._dims = _strides(self._accesses, len(computation.axes))
        itemsize = writes[0].itemsize_bytes if writes else 4
        self._log_lanes = float(np.log2(max(1, computation.vector_bytes // itemsize)))
        self._log_scarcity = float(np.log2(_PRIOR_REGISTERS / computation.registers))

    def _level_of_loop(self, loop: int) -> float:
        """Return the level that a loop of the nest is in; -1 for the root, -2 for inlining."""
        if loop < 0:
            return loop
        for level, axes in enumerate(self._level_axes):
            if loop < len(axes):
                return level + (loop + 1) / max(1, len(axes))
            loop -= len(axes)
        return self._levels + 1

    def __call__(self, rows: IntArray) -> FloatArray:
        n, axes = len(rows), len(self._computation.axes)
        factors = np.zeros((self._levels, axes, n), dtype=np.float32)  # log2
        for column, axis, levels, table in self._tables:
            factors[levels, axis] = table[rows[:, column]].T
        inside = np.flip(
            np.cumsum(np.flip(factors, axis=0), axis=0), axis=0
        )  # log2 of extents from a level in
        trips = factors.sum(axis=1)
        work = inside.sum(axis=1)
        columns: list[FloatArray] = [*trips]
        spans = 1 + self._strides @ (np.exp2(inside) - 1)  # levels, dimensions of the accesses, n
        missing = np.full((self._levels, n), np.nan, dtype=np.float32)
        touched = np.zeros((self._levels, n), dtype=np.float32)
        tensors: list[FloatArray] = []
        for access, dims in zip(self._accesses, self._dims, strict=True):
            if access is None:
                tensors.append(missing)
                continue
            footprint = access.itemsize_bytes * spans[:, dims].prod(axis=1)
            touched += footprint
            tensors.append(np.log2(footprint))
        log_touched = np.log2(np.maximum(touched, 1))
        reuse = work - log_touched
        for level in range(self._levels):
            columns += [*(tensor[level] for tensor in tensors), log_touched[level], reuse[level]]
        for level in (self._levels - 2, self._levels - 1):
            for dims in self._dims:
                columns.append(
                    missing[level] if dims.stop == dims.start else np.log2(spans[level, dims.stop - 1])
                )
        columns += self._aligned(factors, inside, n)
        columns += self._vectors(factors, n)
        columns += self._unrolling(rows, factors, work, n)
        location = self._location
        columns.append(
            np.full(n, np.nan, dtype=np.float32) if location is None else location[1][rows[:, location[0]]]
        )
        columns.append(np.full(n, self._epilogue_level, dtype=np.float32))
        return np.stack(columns, axis=1)

    def _aligned(self, factors: FloatArray, inside: FloatArray, n: int) -> list[FloatArray]:
        """Return extent and factors of the innermost axes of each kind."""
        columns: list[FloatArray] = []
        for axes in (self._space_axes, self._reduction_axes):
            levels = [level for level, of in enumerate(self._level_axes) if of is axes]
            for depth in range(1, _ALIGNED_AXES + 1):
                axis = axes[-depth] if depth <= len(axes) else None
                missing = np.zeros(n, dtype=np.float32)
                columns.append(missing if axis is None else inside[0, axis])
                columns += [missing if axis is None else factors[level, axis] for level in levels]
        return columns

    def _vectors(self, factors: FloatArray, n: int) -> list[FloatArray]:
        """Return the share of full vectors in the innermost space loop, and the accumulators of the inner block.

        Accumulators count as many times as a register of this target is one of the prior's 32.
        """
        if not self._space_axes:
            return [np.zeros(n, dtype=np.float32)] * 4
        inner = factors[self._levels - 1]
        width = inner[self._space_axes[-1]]
        vectors = np.ceil(np.exp2(width - self._log_lanes) - 1e-6)
        filled = np.exp2(width - self._log_lanes) / vectors
        accumulators = np.log2(vectors) + inner[self._space_axes].sum(axis=0) - width + self._log_scarcity
        return [width - self._log_lanes, filled, np.log2(vectors), accumulators]

    def _unrolling(self, rows: IntArray, factors: FloatArray, work: FloatArray, n: int) -> list[FloatArray]:
        """Return the limit of unrolling, and by how much it exceeds the statements of each inner level."""
        if self._unroll is None:
            return [np.zeros(n, dtype=np.float32)] * (1 + _INNER_LEVELS)
        column, table = self._unroll
        limit = table[rows[:, column]]
        width = (
            factors[self._levels - 1, self._space_axes[-1]] if self._space_axes else np.zeros(n, np.float32)
        )
        return [limit, *(limit - (work[self._levels - 1 - level] - width) for level in range(_INNER_LEVELS))]


def _strides(accesses: Sequence[Access | None], num_axes: int) -> tuple[FloatArray, list[slice]]:
    """Return the stride of each axis in each dimension of all accesses, and the slice of dimensions of each access.

    Strides times (extents - 1) of the axes is the number of indices that each dimension spans, less one.
    """
    rows: list[FloatArray] = []
    dims = []
    for access in accesses:
        first = len(rows)
        for dim in access.dims if access is not None else ():
            row = np.zeros(num_axes, dtype=np.float32)
            for axis, stride in dim:
                row[axis] += stride
            rows.append(row)
        dims.append(slice(first, len(rows)))
    return np.array(rows, dtype=np.float32).reshape(len(rows), num_axes), dims


def _names(structure: str) -> list[str]:
    levels = range(len(structure))
    tensors = [*(f"read{i}" for i in range(_READS)), "write"]
    names = [f"{structure}.trips{level}" for level in levels]
    for level in levels:
        names += [f"bytes{level}.{tensor}" for tensor in tensors]
        names += [f"bytes{level}.all", f"reuse{level}"]
    names += [f"run{level}.{tensor}" for level in levels[-2:] for tensor in tensors]
    for kind in "SR":
        for depth in range(_ALIGNED_AXES):
            names += [f"{kind}{depth}.extent"]
            names += [f"{kind}{depth}.level{level}" for level in levels if structure[level] == kind]
    names += ["vector.width", "vector.filled", "vector.count", "vector.accumulators", "unroll.limit"]
    names += [f"unroll.room{level}" for level in range(_INNER_LEVELS)]
    return [*names, "location.level", "epilogue.level"]
