"""The states of a tuning job, and the one table of transitions."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """State of a tuning job."""

    QUEUED = "queued"
    EXTRACTING = "extracting"
    TUNING = "tuning"
    COMPILING = "compiling"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_finished(self) -> bool:
        """Whether the state changes no more by itself; a person can retry a failed job."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)

    @property
    def clause(self) -> str:
        """The state as it continues a sentence about the job: ``has succeeded``, ``is paused``."""
        if self is JobState.CANCELLED:
            return "was cancelled"
        return f"has {self}" if self.is_finished else f"is {self}"


_ANY_TIME = (JobState.PAUSED, JobState.FAILED, JobState.CANCELLED)

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.EXTRACTING, *_ANY_TIME}),
    # A model without tunable kernels is compiled at once.
    JobState.EXTRACTING: frozenset({JobState.TUNING, JobState.COMPILING, *_ANY_TIME}),
    JobState.TUNING: frozenset({JobState.COMPILING, *_ANY_TIME}),
    # With a larger budget the search goes on.
    JobState.COMPILING: frozenset({JobState.SUCCEEDED, JobState.TUNING, *_ANY_TIME}),
    # A resumed job continues with the step in which it was paused.
    JobState.PAUSED: frozenset(
        {JobState.QUEUED, JobState.TUNING, JobState.COMPILING, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.SUCCEEDED: frozenset(),
    # A retried job continues with the step that failed.
    JobState.FAILED: frozenset({JobState.QUEUED, JobState.TUNING, JobState.COMPILING}),
    JobState.CANCELLED: frozenset(),
}
"""State -> the states that may follow it. Nothing else is ever written to ``jobs.state``."""


def sources(to: JobState) -> frozenset[JobState]:
    """Return the states from which `to` may be entered."""
    return frozenset(state for state, targets in TRANSITIONS.items() if to in targets)


OPEN_STATES: frozenset[JobState] = frozenset(state for state in JobState if not state.is_finished)
"""The states that are not final."""

TURN_STATES: frozenset[JobState] = frozenset({JobState.TUNING, JobState.COMPILING})
"""The states of jobs that take turns on devices."""
