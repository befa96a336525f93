"""Run checks one after the other, and report which are proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from tunefarm_tuning.core.errors import reason_of

PROVED, FAILED, NO_GPU = 0, 1, 4
"""Exit codes."""

Check = tuple[str, Callable[[], str]]
"""What is to be proved, and what does it: returns what it saw, and raises where it does not hold."""


class NotProvedError(RuntimeError):
    """A check's finding: it does not hold."""


def prove(checks: Sequence[Check], tell: Callable[[str], None]) -> int:
    """Do all of them, whatever fails; return the exit code."""
    failed = 0
    for claim, check in checks:
        try:
            tell(f"proved  {claim}: {check()}")
        except Exception as error:
            failed += 1
            reason = str(error) if isinstance(error, NotProvedError) else reason_of(error)
            tell(f"FAILED  {claim}: {' '.join(reason.split())[:500]}")
    tell(f"{len(checks) - failed} of {len(checks)} proved")
    return FAILED if failed else PROVED


def right(measured: Mapping[str, Any]) -> str:
    """Return how fast and how exact a run of `parts.in_a_child` was.

    Raises:
        NotProvedError: If its outputs are wrong.
    """
    holds(measured["ok"], f"wrong: {measured['wrong']}")
    return f"{1e6 * median(measured['samples_sec']):.1f} µs, off by {measured['max_rel_error']:.1e} of the outputs' size"


def holds(condition: bool, otherwise: str) -> None:
    """Raise where something does not hold.

    Raises:
        NotProvedError: With `otherwise`.
    """
    if not condition:
        raise NotProvedError(otherwise)
