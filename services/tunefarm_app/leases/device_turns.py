"""Taking turns on devices: which job gets a free device, which step is woken next, and why a job waits.

The job of the highest priority comes first; among equals, the job that had the least device time (`Jobs.catch_up`
keeps a new job from making up for all that others had before). A job holds a device for one round, so the job that
comes first gets it when that round ends. A measurement of an artifact that somebody asked for comes before all jobs, as
long as a worker may take it any moment.
"""

from __future__ import annotations

from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Json, PoolCounts, Step, StepKind, StepState
from tunefarm_text import quantities

FOR_A_WORKER = "waiting for a worker"


def wake_next(repos: Repositories, device_key: str) -> Step | None:
    """Find the step that is next on a free device of this pool, make it due, and return it for sending.

    None if there is none, or all such steps are due and sent already.
    """
    free = repos.devices.counts(device_key).free
    steps = (
        (*repos.turns.measurements(device_key), *repos.turns.next_of(device_key, free))[:free] if free else ()
    )
    now = repos.now() if steps else 0.0
    asleep = [step.id for step in steps if step.not_before > now or step.sent_at is None]
    return repos.steps.expedite(asleep[0]) if asleep else None


def may_take(repos: Repositories, job_id: str, device_key: str) -> bool:
    """Return whether the pool has more free devices than waiting jobs that come before this one."""
    ahead = repos.turns.ahead_of(job_id, device_key).total + len(repos.turns.measurements(device_key))
    return ahead == 0 or repos.devices.counts(device_key).free > ahead


def why_waiting(job: Job, step: Step | None, now: float) -> str | None:
    """Return why the job's open step waits; None if the job is running, paused or ended."""
    if step is None or step.state is not StepState.READY or job.state.is_finished:
        return None
    if step.not_before > now and step.error is not None:
        return f"waiting to retry the {step.kind} step after an error: {step.error.get('message', '')}"
    for_a_device = job.progress.get("waiting")
    if isinstance(for_a_device, str) and job.progress.get("waiting_told") != FOR_A_WORKER:
        return for_a_device
    return FOR_A_WORKER


def without_device(device_key: str, pool: PoolCounts) -> str | None:
    """Return why no device of the pool can be had; None if one is free."""
    if pool.up == 0:
        return f"waiting for a device of {device_key}: {pool}"
    if pool.free == 0:
        return f"waiting for a device of {device_key}: {pool.up} of {pool.total} online, all busy"
    return None


def import_wait(repos: Repositories, model_id: str) -> str | None:
    """Return why the import of a model has not begun; None if a worker has it."""
    step = repos.steps.find(StepKind.IMPORT, model_id)
    if step is None or step.state is not StepState.READY:
        return None
    ahead = repos.steps.ready_before(step)
    return f"{FOR_A_WORKER}: {quantities.plural(ahead, 'import')} before it" if ahead else FOR_A_WORKER


def without_wait(progress: Json) -> Json:
    """Return a job's progress without its entries about waiting."""
    return {name: value for name, value in progress.items() if not name.startswith("wait")}
