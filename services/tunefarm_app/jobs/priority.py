"""Priorities of jobs: whole numbers, some of which have names."""

from __future__ import annotations

from tunefarm_text.job_terms import MAX_PRIORITY, PRIORITIES
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean


def parse_priority(asked: int | str) -> int:
    """Return the number of a priority, which may be given by its name.

    Raises:
        InvalidInputError: ``invalid-priority``.
    """
    priority = PRIORITIES.get(asked) if isinstance(asked, str) else asked
    if priority is None or not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise InvalidInputError(
            f"the priority is {clean(str(asked), 40)!r}, but must be {', '.join(PRIORITIES)}, or a whole number from "
            f"{-MAX_PRIORITY} to {MAX_PRIORITY}",
            code="invalid-priority",
        )
    return priority
