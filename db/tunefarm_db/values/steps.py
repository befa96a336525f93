"""Values of steps: the queue of work."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tunefarm_db.values.base import Json


class StepKind(StrEnum):
    """The kind of work of a step."""

    IMPORT = "import"
    EXTRACT = "extract"
    TUNE = "tune"
    CONFIRM = "confirm"
    COMPILE = "compile"
    SOURCE = "source"
    SAMPLES = "samples"
    MEASURE = "measure"
    DRAFT = "draft"

    @property
    def needs_device(self) -> bool:
        """Whether a step of this kind waits for a device, in its job's turn."""
        return self in (StepKind.TUNE, StepKind.CONFIRM, StepKind.COMPILE)


class StepState(StrEnum):
    """State of a step; the last three are final."""

    READY = "ready"
    LEASED = "leased"
    PAUSED = "paused"  # nobody can claim it until its job is resumed
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A short piece of work for one Celery message.

    Attributes:
        subject_id: Its subject: the model of an import, the key of a kernel's source, a file of samples, otherwise the job. A
            measurement belongs to no job (`job_id`), since its subject has ended; nor does a draft, which goes on beside its rounds.
        fence: Grows with each claim; a write counts only under the present fence.
        attempts: Claims so far, less the ones handed back by `release`.
        faults: Attempts that failed although neither worker nor device was lost.
        not_before: It is not due before this time.
        sent_at: When the dispatcher last sent it to the broker.
        in_flight: The present work of a leased tuning step, for the other steps of its job; see `tunefarm_app.leases.tracks`.
        asked_by: The owner of a measurement: the key that asked for it, or that this one was rotated from. None of other steps.
    """

    id: str
    kind: StepKind
    subject_id: str
    model_id: str
    job_id: str | None
    round: int
    state: StepState
    fence: int
    lease_owner: str | None
    lease_until: float | None
    attempts: int
    faults: int
    not_before: float
    sent_at: float | None
    error: Json | None
    in_flight: Json | None
    created_at: float
    finished_at: float | None
    asked_by: str | None = None
