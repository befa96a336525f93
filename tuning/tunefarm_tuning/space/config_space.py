"""The config space of a workload: sketches, each with its knobs.

Inside, a config is a *row* of ints, ``[sketch, choice of knob 0, choice of knob 1, ...]``, padded with zeros
to the widest sketch, so that sampling, mutation and features work on thousands of configs at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tunefarm_tuning.space.config import Config
from tunefarm_tuning.space.factorization import IntArray
from tunefarm_tuning.space.gpu_tiling import GpuTiling, draw_fitting
from tunefarm_tuning.space.knob import Knob
from tunefarm_tuning.workload.computation import Computation

_VERSION = 1
_KEPT_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Sketch:
    """A design space of a workload.

    Attributes:
        knobs: The knobs, in the order of the trace's sampling instructions.
        axes: For each knob, the axis of the space's `Computation` that it tiles, or -1. Empty if unknown.
        structure: How the tiled axes are nested, outermost first: ``S`` and ``R`` for a level of the space and the
            reduction loops (``"SSRSRS"``). Empty if there is none.
        epilogue_level: Inside which level of `structure` the consumer of the main block runs; -1 behind all loops.
    """

    knobs: tuple[Knob, ...]
    axes: tuple[int, ...] = ()
    structure: str = ""
    epilogue_level: int = -1

    @property
    def size(self) -> int:
        """Number of configs of this sketch, however large."""
        return prod(len(knob) for knob in self.knobs)


class ConfigSpace:
    """All configs of a workload that a tuner may propose.

    A config as applied can be outside the space, since an illegal compute location becomes a legal loop that no sketch
    lists. Then `contains` is false, and `row_of` returns the row of the nearest config in the space.

    Args:
        sketches: At least one.
        computation: Computation of the workload's main block; None if unknown. Cost models read it; it is not part of
            the space's identity.
        gpu: For each sketch, its tiling on a GPU; None if unknown. With it, random configs fit the GPU, and cost models
            read their resources. Empty for CPUs; not part of the identity.

    Raises:
        ValueError: If there is no sketch.
    """

    def __init__(
        self,
        sketches: Sequence[Sketch],
        computation: Computation | None = None,
        gpu: Sequence[GpuTiling | None] = (),
    ) -> None:
        if not sketches:
            raise ValueError("a config space needs at least one sketch")
        self.sketches = tuple(sketches)
        self.computation = computation
        self.gpu = tuple(gpu) if any(gpu) else ()
        self.width = 1 + max(len(sketch.knobs) for sketch in self.sketches)
        self._rows: dict[Config, IntArray | None] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigSpace) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"ConfigSpace({len(self.sketches)} sketches, {self.size:.3g} configs, {self.key})"

    @cached_property
    def key(self) -> str:
        """Content hash of the knobs; their names and sampling weights do not enter it."""
        identity = [[knob.identity for knob in sketch.knobs] for sketch in self.sketches]
        text = json.dumps([_VERSION, identity], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def size(self) -> int:
        """Number of configs, however large."""
        return sum(sketch.size for sketch in self.sketches)

    @property
    def family(self) -> str:
        """The computation without its extents; empty if unknown."""
        return self.computation.family if self.computation is not None else ""

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the computation's axes; empty if unknown."""
        return self.computation.extents if self.computation is not None else ()

    # ---- one config

    def contains(self, config: Config) -> bool:
        """Return whether `config` is a point of this space."""
        if not self._fits(config):
            return False
        knobs = self.sketches[config.sketch].knobs
        return all(knob.find(d) is not None for knob, d in zip(knobs, config.decisions, strict=True))

    def config_at(self, index: int) -> Config:
        """Return the config at an index of the canonical order, ``0 <= index < size``.

        Raises:
            IndexError: If there is no such index.
        """
        if not 0 <= index < self.size:
            raise IndexError(index)
        for number, sketch in enumerate(self.sketches):
            if index < sketch.size:
                decisions = []
                for knob in reversed(sketch.knobs):
                    index, choice = divmod(index, len(knob))
                    decisions.append(knob.decision_at(choice))
                return Config(number, tuple(reversed(decisions)))
            index -= sketch.size
        raise AssertionError("unreachable")

    def index_of(self, config: Config) -> int:
        """Return the index of a config in the canonical order.

        Raises:
            ValueError: If the space does not contain it.
        """
        if not self._fits(config):
            raise ValueError(f"config {config.key} is of another space")
        index = 0
        for knob, decision in zip(self.sketches[config.sketch].knobs, config.decisions, strict=True):
            choice = knob.find(decision)
            if choice is None:
                raise ValueError(f"config {config.key}: knob {knob.name} has no choice {decision}")
            index = index * len(knob) + choice
        return index + sum(sketch.size for sketch in self.sketches[: config.sketch])

    def sample(self, rng: np.random.Generator, n: int) -> list[Config]:
        """Draw up to `n` different configs; fewer only if the space has fewer."""
        if self.size <= 4 * n:
            order = rng.permutation(self.size)[:n]
            return [self.config_at(int(i)) for i in order]
        distinct: dict[bytes, IntArray] = {}
        for _ in range(
            64
        ):  # a choice may have a sampling weight near zero, so the number of tries is limited
            for row in self.sample_rows(rng, n):
                distinct.setdefault(row.tobytes(), row)
            if len(distinct) >= n:
                break
        return self.configs(np.array(list(distinct.values())[:n]))

    def neighbours(self, config: Config) -> Iterator[Config]:
        """Yield the configs that differ by one step in one knob, in canonical order.

        A step moves one prime factor of a tile, or takes the choice next to the present one.
        """
        row = self.row_of(config)
        if row is None:
            return
        for column, knob in enumerate(self.sketches[config.sketch].knobs, start=1):
            for choice in knob.neighbour_indices(int(row[column])):
                near = row.copy()
                near[column] = choice
                yield self.configs(near[None])[0]

    # ---- rows

    def row_of(self, config: Config) -> IntArray | None:
        """Return the row of the config, or of the nearest in the space; None if the sketch does not fit.

        The row is read-only and cached: a cost model asks for the rows of all trials at each fit.
        """
        if config not in self._rows:
            if len(self._rows) >= _KEPT_ROWS:
                self._rows.clear()
            self._rows[config] = self._find_row(config)
        return self._rows[config]

    def configs(self, rows: IntArray) -> list[Config]:
        """Return the config of each row."""
        configs = []
        for sketch, *choices in rows.tolist():
            knobs = self.sketches[sketch].knobs
            configs.append(
                Config(sketch, tuple(k.decision_at(c) for k, c in zip(knobs, choices, strict=False)))
            )
        return configs

    def sample_rows(self, rng: np.random.Generator, n: int) -> IntArray:
        """Draw `n` rows with repetition: first a sketch, then each of its knobs. Shape ``(n, width)``.

        Rows that do not fit (`fits`) are drawn again; some remain if almost none fits.
        """
        rows = self._draw(rng, n)
        return rows if not self.gpu else draw_fitting(self, rows, lambda count: self._draw(rng, count))

    def fits(self, rows: IntArray) -> npt.NDArray[np.bool_]:
        """Return which rows fit the target, as far as that is known without a compiler. Shape ``(n,)``."""
        fitting = np.ones(len(rows), dtype=np.bool_)
        for number, tiling in enumerate(self.gpu):
            chosen = np.flatnonzero(rows[:, 0] == number)
            if tiling is not None and len(chosen):
                fitting[chosen] = tiling.fits(rows[chosen], self.sketches[number].knobs)
        return fitting

    def _draw(self, rng: np.random.Generator, n: int) -> IntArray:
        rows = np.zeros((n, self.width), dtype=np.int64)
        rows[:, 0] = rng.integers(len(self.sketches), size=n)
        for number, sketch in enumerate(self.sketches):
            chosen = np.flatnonzero(rows[:, 0] == number)
            for column, knob in enumerate(sketch.knobs, start=1):
                rows[chosen, column] = knob.sample_indices(rng, len(chosen))
        return rows

    def mutate_rows(self, rows: IntArray, rng: np.random.Generator, *, jump: float = 0.5) -> IntArray:
        """Return a copy with one knob changed in each row: to any choice with probability `jump`, else to a neighbour."""
        changed = rows.copy()
        if self.width == 1:
            return changed
        movable = self._sizes[rows[:, 0]] > 1
        column = np.where(movable, rng.random(movable.shape), -1.0).argmax(axis=1) + 1
        jumps = rng.random(len(rows)) < jump
        for number, sketch in enumerate(self.sketches):
            for index, knob in enumerate(sketch.knobs, start=1):
                if len(knob) < 2:
                    continue
                chosen = np.flatnonzero((rows[:, 0] == number) & (column == index))
                far, near = chosen[jumps[chosen]], chosen[~jumps[chosen]]
                shift = rng.integers(1, len(knob), size=len(far))
                changed[far, index] = (rows[far, index] + shift) % len(knob)
                changed[near, index] = knob.step_indices(rows[near, index], rng)
        return changed if not self.gpu else np.where(self.fits(changed)[:, None], changed, rows)

    def crossover_rows(self, ones: IntArray, others: IntArray, rng: np.random.Generator) -> IntArray:
        """Return children that take each knob from one of two parents, at even odds.

        A child has the sketch of its parent in `ones`. Parents of two sketches exchange the knobs that are equal
        at equal positions.
        """
        alike = self._alike[ones[:, 0], others[:, 0]]
        take = alike & (rng.random(alike.shape) < 0.5)
        children = ones.copy()
        children[:, 1:][take] = others[:, 1:][take]
        return children if not self.gpu else np.where(self.fits(children)[:, None], children, ones)

    def mutate(self, config: Config, rng: np.random.Generator) -> Config:
        """Deprecated: `mutate_rows` for one config."""
        return self.configs(self.mutate_rows(self._parent_row(config), rng))[0]

    def crossover(self, one: Config, other: Config, rng: np.random.Generator) -> Config:
        """Deprecated: `crossover_rows` for two configs."""
        return self.configs(self.crossover_rows(self._parent_row(one), self._parent_row(other), rng))[0]

    def _parent_row(self, config: Config) -> IntArray:
        row = self.row_of(config)
        if row is None:
            raise ValueError(f"config {config.key} is of another space")
        return row[None]

    def distances(self, rows: IntArray, others: IntArray) -> npt.NDArray[np.float64]:
        """Return the number of differing knobs, the sketch included. Shape ``(len(rows), len(others))``."""
        differs = rows[:, None, :] != others[None, :, :]
        return np.asarray(differs.sum(axis=2), dtype=np.float64)

    # ---- JSON

    def to_json(self) -> dict[str, Any]:
        """Return a compact object: a tile has its extent, not its choices."""
        data: dict[str, Any] = {
            "version": _VERSION,
            "sketches": [[knob.to_json() for knob in sketch.knobs] for sketch in self.sketches],
        }
        if self.computation is not None:
            data["computation"] = self.computation.to_json()
            data["nests"] = [[list(s.axes), s.structure, s.epilogue_level] for s in self.sketches]
        if self.gpu:
            data["gpu"] = [None if tiling is None else tiling.to_json() for tiling in self.gpu]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ConfigSpace:
        """Read what `to_json` wrote.

        Raises:
            ValueError: If it is not such an object.
        """
        if data.get("version") != _VERSION or not isinstance(data.get("sketches"), list):
            raise ValueError(f"not a config space of version {_VERSION}: {str(data)[:80]}")
        knobs = [tuple(Knob.from_json(knob) for knob in sketch) for sketch in data["sketches"]]
        if data.get("computation") is None:
            return cls([Sketch(sketch_knobs) for sketch_knobs in knobs])
        try:
            sketches = [
                Sketch(sketch_knobs, tuple(int(axis) for axis in axes), str(structure), int(level))
                for sketch_knobs, (axes, structure, level) in zip(knobs, data["nests"], strict=True)
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a config space: its tilings are {str(data.get('nests'))[:80]}") from error
        gpu = [
            None if tiling is None else GpuTiling.from_json(tiling, len(sketch_knobs))
            for tiling, sketch_knobs in zip(data.get("gpu") or (), knobs, strict=False)
        ]
        return cls(sketches, Computation.from_json(data["computation"]), gpu)

    # ---- inside

    def _find_row(self, config: Config) -> IntArray | None:
        if not self._fits(config):
            return None
        row = np.zeros(self.width, dtype=np.int64)
        row[0] = config.sketch
        knobs = self.sketches[config.sketch].knobs
        for column, (knob, decision) in enumerate(zip(knobs, config.decisions, strict=True), start=1):
            choice = knob.nearest(decision)
            if choice is None:
                return None
            row[column] = choice
        row.setflags(write=False)
        return row

    def _fits(self, config: Config) -> bool:
        return 0 <= config.sketch < len(self.sketches) and len(config.decisions) == len(
            self.sketches[config.sketch].knobs
        )

    @cached_property
    def _sizes(self) -> IntArray:
        """Number of choices per sketch and knob, 0 for a missing knob. Shape ``(sketches, width - 1)``."""
        sizes = np.zeros((len(self.sketches), self.width - 1), dtype=np.int64)
        for number, sketch in enumerate(self.sketches):
            sizes[number, : len(sketch.knobs)] = [len(knob) for knob in sketch.knobs]
        return sizes

    @cached_property
    def _alike(self) -> npt.NDArray[np.bool_]:
        """Whether two sketches have equal knobs at a position. Shape ``(sketches, sketches, width - 1)``."""
        count = len(self.sketches)
        alike = np.zeros((count, count, self.width - 1), dtype=np.bool_)
        for i, first in enumerate(self.sketches):
            for j, second in enumerate(self.sketches):
                same = [a.identity == b.identity for a, b in zip(first.knobs, second.knobs, strict=False)]
                alike[i, j, : len(same)] = same
        return alike
