"""A config: a point of a config space; a decision for each knob."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Decision = int | tuple[int, ...]
"""A knob's value: a tile's factors, a categorical's index, or a compute location (-1 root, -2 inline)."""


class KnobKind(StrEnum):
    """Meaning of a knob's decision.

    TILE: a tuple of factors whose product is the extent, or one of `Knob.tail_products`. CATEGORICAL: an index into `Knob.values`.
    LOCATION: a loop's index, -1 for the root, -2 for inlining.
    """

    TILE = "tile"
    CATEGORICAL = "categorical"
    LOCATION = "location"


@dataclass(frozen=True, slots=True)
class Config:
    """A point of a `ConfigSpace`: a sketch and a decision for each of its knobs.

    A sketch is one of the workload's design spaces (MetaSchedule's word); its knobs are the
    sampling instructions of the sketch's trace, in order.
    """

    sketch: int
    decisions: tuple[Decision, ...]

    @property
    def key(self) -> str:
        """Canonical text: equal configs have equal keys, in every process and version."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    def to_json(self) -> list[Any]:
        """Return ``[sketch, [decision, ...]]`` with plain ints and lists."""
        return [self.sketch, [list(d) if isinstance(d, tuple) else d for d in self.decisions]]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Config:
        """Read what `to_json` wrote.

        Raises:
            ValueError: If the shape is not ``[int, [int | [int, ...], ...]]``.
        """
        if len(data) != 2 or not isinstance(data[0], int) or not isinstance(data[1], list):
            raise ValueError(f"not a config: {str(data)[:80]}")
        decisions: list[Decision] = []
        for d in data[1]:
            if isinstance(d, int):
                decisions.append(d)
            elif isinstance(d, list) and all(isinstance(f, int) for f in d):
                decisions.append(tuple(d))
            else:
                raise ValueError(f"not a decision: {str(d)[:80]}")
        return cls(data[0], tuple(decisions))
