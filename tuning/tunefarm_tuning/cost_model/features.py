"""Features of configs, computed from their decisions alone: without TVM, for thousands of rows at once.

First come the groups in `FEATURE_GROUPS`, whose columns mean the same in every space of their kind; then those of this space's own
knobs. Every choice of every knob has its features in a table that is computed once, so that a batch is looked up, not computed.
Joint properties of several tiles (the size of the innermost block, the number of parallel iterations) are sums of logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tunefarm_tuning.cost_model.base import FloatArray
from tunefarm_tuning.cost_model.gpu_features import GpuFeatures
from tunefarm_tuning.cost_model.nest_features import NestFeatures
from tunefarm_tuning.space.config import KnobKind
from tunefarm_tuning.space.config_space import ConfigSpace
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.space.knob import Knob

FEATURE_GROUPS = (NestFeatures, GpuFeatures)
"""The feature groups that spaces share, in the order of their columns.

To add one: write a class with ``names`` (one per column; empty if the group does not apply to the space) and ``__call__(rows)``
(shape ``(n, len(names))``, NaN if unknown), as `NestFeatures`, and list it here. Shipped priors apply only to spaces with the
same names, so fit them again (benchmarks/prior/) for the spaces that it adds columns to.
"""

_MAX_ONE_HOT = 16


class FeatureMap:
    """Turns rows of one config space into a feature matrix of fixed width.

    Equal knobs at the same position of several sketches share their columns. A column is 0 for sketches without the knob, and the
    sketch's own columns tell why.

    Attributes:
        names: One name per column. Spaces with equal names have comparable features.
        shared: The first names: those of `FEATURE_GROUPS`, comparable between spaces whose `shared` are equal.
    """

    def __init__(self, space: ConfigSpace) -> None:
        self._space = space
        self._groups = [group(space) for group in FEATURE_GROUPS]
        self.shared: tuple[str, ...] = tuple(name for group in self._groups for name in group.names)
        names = [f"sketch{number}" for number in range(len(space.sketches))]
        self._blocks: list[
            tuple[int, int, FloatArray, int]
        ] = []  # sketch, column of the row, table, first feature
        first_column: dict[object, int] = {}
        tables: dict[object, FloatArray] = {}
        for number, sketch in enumerate(space.sketches):
            for column, knob in enumerate(sketch.knobs, start=1):
                identity = (column, knob.identity)
                if identity not in first_column:
                    tables[identity], knob_names = _knob_features(knob)
                    first_column[identity] = len(names)
                    names += [f"{column}.{name}" for name in knob_names]
                self._blocks.append((number, column, tables[identity], first_column[identity]))
        self._sums = _joint_features(space)
        self._first_sum = len(names)
        names += self._sums[0]
        self._width = len(names)
        self.names: tuple[str, ...] = (*self.shared, *names)

    def __call__(self, rows: IntArray) -> FloatArray:
        """Return the features of rows; NaN for a group that does not apply to a row's sketch. Shape ``(n, len(names))``."""
        return np.hstack([*(group(rows) for group in self._groups), self._of_knobs(rows)])

    def _of_knobs(self, rows: IntArray) -> FloatArray:
        features = np.zeros((len(rows), self._width), dtype=np.float32)
        sketches = rows[:, 0]
        features[np.arange(len(rows)), sketches] = 1.0
        for number, column, table, first in self._blocks:
            chosen = np.flatnonzero(sketches == number)
            features[chosen, first : first + table.shape[1]] = table[rows[chosen, column]]
        for number, column, table, target in self._sums[1]:
            chosen = np.flatnonzero(sketches == number)
            features[chosen[:, None], self._first_sum + target] += table[rows[chosen, column]]
        return features


def _knob_features(knob: Knob) -> tuple[FloatArray, list[str]]:
    """Return the features of every choice of a knob, and their names."""
    if knob.kind is KnobKind.TILE:
        logs = np.log2(knob.table).astype(np.float32)
        suffix_sums = np.flip(np.cumsum(np.flip(logs, axis=1), axis=1), axis=1)
        inner = suffix_sums[:, 1:-1]  # the whole product is constant, the last is the factor itself
        names = [f"log{i}" for i in range(knob.parts)] + [f"inner{i}" for i in range(1, knob.parts - 1)]
        return np.hstack([logs, inner]), names
    values = np.array(knob.values, dtype=np.float32)
    columns = [np.sign(values) * np.log2(1 + np.abs(values)), np.arange(len(values), dtype=np.float32)]
    names = ["value", "rank"]
    if 2 < len(values) <= _MAX_ONE_HOT:
        columns += list(np.eye(len(values), dtype=np.float32))
        names += [f"is{i}" for i in range(len(values))]
    return np.stack(columns, axis=1).astype(np.float32), names


def _joint_features(space: ConfigSpace) -> tuple[list[str], Sequence[tuple[int, int, FloatArray, IntArray]]]:
    """Return the names of the joint columns, and each tile's contribution to them.

    Tiles with the same number of parts are of one kind, since space loops have more levels than reduction loops. For every kind
    and level: the product of the factors at that level, and of all levels inside it.
    """
    parts = sorted({k.parts for sketch in space.sketches for k in sketch.knobs if k.kind is KnobKind.TILE})
    names: list[str] = []
    first: dict[int, int] = {}
    for count in parts:
        first[count] = len(names)
        names += [f"all{count}.log{i}" for i in range(count)] + [
            f"all{count}.inner{i}" for i in range(1, count - 1)
        ]
    block = len(names)
    names.append("innermost block")  # of space and reduction loops together
    added = []
    for number, sketch in enumerate(space.sketches):
        for column, knob in enumerate(sketch.knobs, start=1):
            if knob.kind is KnobKind.TILE:
                table, _ = _knob_features(knob)
                last = table[:, knob.parts - 1 : knob.parts]
                target = np.array([*range(first[knob.parts], first[knob.parts] + table.shape[1]), block])
                added.append((number, column, np.hstack([table, last]), target))
    return names, added
