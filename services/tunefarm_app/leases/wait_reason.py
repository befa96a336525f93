"""Tell people why a job waits."""

from __future__ import annotations

from tunefarm_db.values import Job, Json, Step, StepState

FOR_A_WORKER = "waiting for a worker"


def why_waiting(job: Job, step: Step | None, now: float) -> str | None:
    """Return why the job waits; None where it is at work, is paused or has ended.

    Args:
        job: The job.
        step: Its open step.
        now: The database's time.
    """
    if step is None or step.state is not StepState.READY or job.state.is_finished:
        return None
    if step.not_before > now and step.error is not None:
        return f"waiting to try the {step.kind} step again after: {step.error.get('message', '')}"
    for_a_device = job.progress.get("waiting")
    if isinstance(for_a_device, str) and job.progress.get("waiting_told") != FOR_A_WORKER:
        return for_a_device
    return FOR_A_WORKER


def without_wait(progress: Json) -> Json:
    """Return a job's progress without its entries about waiting."""
    return {name: value for name, value in progress.items() if not name.startswith("wait")}
