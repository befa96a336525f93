"""A config in words, knob by knob. It is read from the space's JSON, since the API process has no NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tunefarm_db.values import Space

_LOCATIONS = {-1: "at the root", -2: "inlined"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobLine:
    """One decision: ``Loop i of 64`` is ``4 × 2 × 8``."""

    knob: str
    decision: str


def schedule_lines(config: Sequence[Any], space: Space | None, space_key: str) -> list[KnobLine]:
    """Return a line per knob.

    Args:
        config: `Config.to_json`.
        space: What is known of the workload's space; it gives the knobs their names if it is the config's own.
        space_key: The config's.
    """
    sketch, decisions = config
    knobs: Sequence[Any] = ()
    if space is not None and space.space_key == space_key:
        sketches = space.space.get("sketches", ())
        knobs = sketches[sketch] if 0 <= sketch < len(sketches) else ()
    if len(knobs) != len(decisions):
        return [
            KnobLine(knob=f"knob {index}", decision=_plain(decision))
            for index, decision in enumerate(decisions, start=1)
        ]
    return [_line(knob, decision) for knob, decision in zip(knobs, decisions, strict=True)]


def _line(knob: Sequence[Any], decision: Any) -> KnobLine:
    kind, name, *parameters = knob
    if kind == "tile":
        return KnobLine(knob=f"{name}: split {parameters[0]} into", decision=_plain(decision))
    values = parameters[0] if parameters else ()
    if kind == "location":
        return KnobLine(knob=f"{name}: computed", decision=_LOCATIONS.get(decision, f"at loop {decision}"))
    chosen = values[decision] if isinstance(decision, int) and 0 <= decision < len(values) else decision
    return KnobLine(knob=str(name), decision=_plain(chosen))


def _plain(decision: Any) -> str:
    if isinstance(decision, list):
        return " × ".join(map(str, decision))
    return f"{decision:g}" if isinstance(decision, float) else str(decision)
