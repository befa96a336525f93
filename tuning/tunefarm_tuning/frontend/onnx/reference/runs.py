"""In which ways a network was run for its reference, and how well the comparison notices faults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(slots=True, kw_only=True)
class Runs:
    """What was run, for the report.

    Attributes:
        ways: Names of the ways that were run on every set of inputs.
        left_out: Why other ways were not; sentences.
        float64: Whether the reference is in float64.
        probes: The number of layers whose weights were multiplied by `PROBE_SCALE`.
        noticed: In how many of them the comparison of outputs noticed.
        hurried: Whether something was left out for lack of time; not in the report.
    """

    ways: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    float64: bool = False
    probes: int = 0
    noticed: int = 0
    hurried: bool = False

    def joined(self, other: Runs) -> Runs:
        """Return this one, of a network that was run on other inputs as well."""
        return replace(
            self,
            ways=[way for way in self.ways if way in other.ways],
            left_out=list(dict.fromkeys([*self.left_out, *other.left_out])),
            float64=self.float64 and other.float64,
            hurried=self.hurried or other.hurried,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "ways": self.ways,
            "left_out": self.left_out,
            "float64": self.float64,
            "probes": self.probes,
            "noticed": self.noticed,
        }
