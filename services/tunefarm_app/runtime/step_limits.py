"""Time limits of steps: for the step's own deadline, for Celery and for the broker."""

from __future__ import annotations

from tunefarm_app.settings import Settings
from tunefarm_db.values import StepKind

_SLACK_SEC = 60.0
_IMPORT_STAGES = (
    4  # reading, loading in ONNX Runtime, importing, extracting: the import's time-out holds for each
)


def deadline_sec(settings: Settings, kind: StepKind) -> float:
    """Return the seconds after which a step of this kind is told to stop and its child processes are closed."""
    match kind:
        case StepKind.IMPORT | StepKind.EXTRACT | StepKind.SAMPLES:
            return max(
                settings.step_time_limit_sec, _IMPORT_STAGES * settings.import_timeout_sec + _SLACK_SEC
            )
        case StepKind.COMPILE | StepKind.MEASURE | StepKind.DRAFT:
            return settings.compile_time_limit_sec
        case _:
            return settings.step_time_limit_sec


def hard_limit_sec(settings: Settings, kind: StepKind) -> float:
    """Return the seconds after which Celery kills the process of a message of this kind, should the deadline fail.

    A message may run a chain of tuning steps, so the chain's length is added.
    """
    chain_sec = settings.step_chain_sec if kind in (StepKind.TUNE, StepKind.CONFIRM) else 0.0
    return deadline_sec(settings, kind) + chain_sec + 2 * _SLACK_SEC


def soft_limit_sec(settings: Settings, kind: StepKind) -> float:
    """Return the seconds after which Celery raises in a step that ignored its deadline."""
    return hard_limit_sec(settings, kind) - _SLACK_SEC


def visibility_timeout_sec(settings: Settings) -> int:
    """Return the seconds after which the broker may deliver a message again: three times the longest step.

    The shortest value of all programs on one broker wins, so API and workers both take it from here. It is long
    because nothing depends on it: a killed worker's step comes back by its lease.
    """
    return int(3 * max(hard_limit_sec(settings, kind) for kind in StepKind))
