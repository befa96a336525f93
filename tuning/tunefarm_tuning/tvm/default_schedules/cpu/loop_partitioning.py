"""Where along a loop the conditions of a stage change: the seams of a concatenation, the edges of a padding.

A vector that a condition may cut is computed element by element. Loops that end at the seams have no conditions left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx
from tvm.sym import Analyzer, detect_linear_equation

from tunefarm_tuning.tvm.base.tir import walk

_HOLDS: dict[type, Callable[[int], bool]] = {
    tirx.LT: lambda difference: difference < 0,
    tirx.LE: lambda difference: difference <= 0,
    tirx.GT: lambda difference: difference > 0,
    tirx.GE: lambda difference: difference >= 0,
    tirx.EQ: lambda difference: difference == 0,
    tirx.NE: lambda difference: difference != 0,
}


def seams_of(sch: Any, block: Any) -> dict[int, list[int]]:
    """Return, by a block's variables, the values at which a condition on that variable alone changes, in order.

    Args:
        sch: A schedule.
        block: One whose loops are its own (`stage_of`).
    """
    node = sch.get(block)
    analyzer = Analyzer()
    for variable in node.iter_vars:
        analyzer.bind(variable.var, tvm.ir.Range(0, variable.dom.extent))
    found: dict[int, set[int]] = {}
    for condition in walk(node.body):
        if type(condition) not in _HOLDS:
            continue
        difference = analyzer.simplify(condition.a - condition.b)
        for place, variable in enumerate(node.iter_vars):
            seams = _seams(difference, variable, type(condition))
            if seams:
                found.setdefault(place, set()).update(seams)
    return {place: sorted(seams) for place, seams in found.items()}


def _seams(difference: Any, variable: Any, kind: type) -> set[int]:
    parts = list(detect_linear_equation(difference, [variable.var]))
    if len(parts) != 2 or not all(isinstance(part, int | tirx.IntImm) for part in parts):
        return set()
    slope, start = (int(part) for part in parts)
    if slope == 0:
        return set()
    # A comparison changes beside the root of the difference alone; that of whole numbers is off by one at most.
    holds, root = _HOLDS[kind], -start // slope
    near = range(max(1, root - 1), min(int(variable.dom.extent), root + 3))
    return {value for value in near if holds(slope * value + start) != holds(slope * (value - 1) + start)}
