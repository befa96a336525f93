"""Tell whether a config can be one of a stored config space: from its JSON alone, because the API's process has no NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tunefarm_tuning.space.config import Config, Decision, KnobKind

_INLINED = -2


def misfit(space: Mapping[str, Any], config: Config) -> str:
    """Say why no measurement in a space can be of a config; empty if one can, listed (`ConfigSpace.contains`) or as applied.

    Args:
        space: What `ConfigSpace.to_json` wrote.
        config: Any config, also one of another space.
    """
    sketches: Sequence[Sequence[Sequence[Any]]] = space["sketches"]
    if not 0 <= config.sketch < len(sketches):
        return f"it is of sketch {config.sketch}, and there are {len(sketches)}"
    knobs = sketches[config.sketch]
    if len(config.decisions) != len(knobs):
        return f"it has {len(config.decisions)} decisions, and its sketch {len(knobs)} knobs"
    for number, (knob, decision) in enumerate(zip(knobs, config.decisions, strict=True), start=1):
        if not _can_hold(knob, decision):
            return f"decision {number} is {str(decision)[:60]}, which knob {knob[1]} cannot be"
    return ""


def _can_hold(knob: Sequence[Any], decision: Decision) -> bool:
    """Return whether a config as applied can have a decision: also a tiling that was thinned away, or a location from no list.

    Args:
        knob: What `Knob.to_json` wrote.
        decision: The decision.
    """
    kind, _, *fields = knob
    if kind == KnobKind.TILE:
        extent, parts, max_innermost, *tails = fields
        if not isinstance(decision, tuple) or len(decision) != parts or min(decision) < 1:
            return False
        products = (extent, *(tails[0] if tails else ()))
        return prod(decision) in products and decision[-1] <= max_innermost
    if type(decision) is not int:  # no bool either
        return False
    return decision >= _INLINED if kind == KnobKind.LOCATION else 0 <= decision < len(fields[0])
