"""The policy for failed steps: a table from errors to actions. The first row that matches decides.

================================================  ============  ===============================================================
Error                                             Action        What happens
================================================  ============  ===============================================================
the job was cancelled                             cancel        the step ends
the job was paused                                pause         the step waits until the job is resumed
the lease was lost                                drop          nothing is written: another worker decides
the worker was told to stop                       hand back     another worker may take the step at once
the input is wrong, gone, or forbids the step     fail          the job (or model, or source) fails with the error
a disk is full, device in use, signing key gone   wait          again after a pause, for as long as it takes
the step took too long                            retry fault   again after a pause, until its faults are `max_step_faults`
the device or another service was away            retry loss    again after a pause, until its attempts are `max_step_attempts`
a bug of ours, or any other error                 retry fault   again after a pause, until its faults are `max_step_faults`
================================================  ============  ===============================================================

A job whose winners cannot be confirmed does not fail: it is compiled without it (see `fail_subject`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tunefarm_app.leases.step_lease import TOO_LONG, JobPausedError, WorkerStoppingError
from tunefarm_app.runtime.full_disk import FULL_DISK_CODES
from tunefarm_tuning.core.errors import (
    CancelledError,
    ConflictError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    TransientError,
    TunefarmError,
)
from tunefarm_tuning.measure.gpu.state import BUSY


class Action(Enum):
    """An action for a failed step; see the module's table."""

    CANCEL = auto()
    PAUSE = auto()
    DROP = auto()
    HAND_BACK = auto()
    FAIL = auto()
    WAIT = auto()
    RETRY_FAULT = auto()
    RETRY_LOSS = auto()


@dataclass(frozen=True, slots=True)
class _Rule:
    action: Action
    errors: tuple[type[TunefarmError], ...]
    codes: frozenset[str] | None = None  # None: any code

    def holds_for(self, error: TunefarmError) -> bool:
        return isinstance(error, self.errors) and (self.codes is None or error.code in self.codes)


_POLICY = (
    _Rule(Action.CANCEL, (CancelledError,)),
    _Rule(Action.PAUSE, (JobPausedError,)),
    _Rule(Action.DROP, (LeaseLostError,)),
    _Rule(Action.HAND_BACK, (WorkerStoppingError,)),
    _Rule(Action.FAIL, (InvalidInputError, NotFoundError, ConflictError)),
    _Rule(Action.WAIT, (TransientError,), FULL_DISK_CODES | {BUSY, "no-signing-key"}),
    _Rule(Action.RETRY_FAULT, (TransientError,), frozenset({TOO_LONG})),
    _Rule(Action.RETRY_LOSS, (TransientError,)),
    _Rule(Action.RETRY_FAULT, (TunefarmError,)),
)


def action_for(error: TunefarmError) -> Action:
    """Return the action for a step that ended with an error. Wrap errors of other kinds in `InvariantError` first."""
    return next(rule.action for rule in _POLICY if rule.holds_for(error))
