"""Group a task's failures by message; messages that differ only in numbers are one group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tunefarm_db.repositories.records.searches import FailedTrial
from tunefarm_tuning.core.untrusted_text import clean

MOST_GROUPS = 12
MOST_CHARACTERS = 600

# Lists of numbers (a config), addresses, names of temporary files, and numbers by themselves.
_VARIES = re.compile(r"\[[\s\d,.\[\]-]*\]|0x[0-9a-fA-F]+|/tmp/\S+|\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures that said the same.

    Attributes:
        example: What the newest of them said, on one line.
        variants: How many different messages they are.
    """

    outcome: str
    example: str
    count: int
    variants: int
    newest: FailedTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What there is to show.

    Attributes:
        groups: The largest first.
        more: How many groups are not shown.
        looked_at: How many failures are counted.
        in_all: How many there are.
    """

    groups: Sequence[FailureGroup]
    more: int
    looked_at: int
    in_all: int


def group_failures(newest_first: Sequence[FailedTrial], in_all: int) -> Failures:
    """Group failures by outcome and message; the parts of a message that vary do not count."""
    groups: dict[tuple[str, str], list[FailedTrial]] = {}
    for trial in newest_first:
        groups.setdefault((trial.outcome, _VARIES.sub("#", trial.message)), []).append(trial)
    ordered = sorted(groups.values(), key=lambda group: -len(group))
    shown = [
        FailureGroup(
            outcome=group[0].outcome,
            example=clean(group[0].message, MOST_CHARACTERS),
            count=len(group),
            variants=len({trial.message for trial in group}),
            newest=group[0],
        )
        for group in ordered[:MOST_GROUPS]
    ]
    return Failures(groups=shown, more=len(ordered) - len(shown), looked_at=len(newest_first), in_all=in_all)
