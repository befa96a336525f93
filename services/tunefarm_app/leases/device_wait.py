"""Waiting for a device: a step that gets none is tried again, and the job's progress says what it waits for."""

from __future__ import annotations

import structlog

from tunefarm_app.leases.device_turns import FOR_A_WORKER, wake_next, without_device
from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.leases.tracks import ends_without_device
from tunefarm_db.repositories.jobs.turns import Ahead
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Json, PoolCounts
from tunefarm_text.quantities import plural

log = structlog.stdlib.get_logger(__name__)

_LONGEST_WAIT_SEC = 10.0
_LOOKS_BEFORE_TELLING = 3
"""Jobs that share devices wait for a moment at every turn: only a longer wait gets an event."""


def wait_for_device(context: StepContext, job: Job) -> None:
    """Release the step until it may get a device, and note in the job's progress why it waits.

    Waiting is no failed attempt and uses no budget. The pauses grow, because a transaction that frees a device wakes
    the next step (`wake_next`): the step looks again only in case that was missed.
    """
    waits = int(job.progress.get("waits", 0)) + 1
    delay_sec = min(context.services.settings.device_retry_sec * 1.3**waits, _LONGEST_WAIT_SEC)
    with context.services.uow.write() as repos:
        repos.steps.lock_claimed(context.step.id, context.step.fence)
        job = repos.jobs.get(job.id, lock=True)
        if ends_without_device(repos, context.step, job):
            log.info("track ends: its job has devices enough")
            return
        repos.steps.release(context.step.id, context.step.fence, delay_sec=delay_sec)
        if not repos.steps.at_work(job.id):
            _tell(repos, job, waits)
        # A device may be free for another step that does not know it yet.
        woken = wake_next(repos, job.device_key)
    if woken is not None:
        context.following.append(woken)
    log.info("waiting for a device", delay_sec=round(delay_sec, 1))


def _tell(repos: Repositories, job: Job, waits: int) -> None:
    pool = repos.devices.counts(job.device_key)
    text = _why(repos, job, pool)
    announced = None if job.progress.get("waiting_told") == FOR_A_WORKER else job.progress.get("waiting_told")
    if announced != text and (pool.up == 0 or waits == _LOOKS_BEFORE_TELLING):
        repos.events.add(job.id, "waiting", {"waiting": text, "device_key": job.device_key})
        announced = text
    progress: Json = {**job.progress, "waiting": text, "waits": waits, "waiting_told": announced}
    repos.jobs.update(job.id, progress=progress)


def _why(repos: Repositories, job: Job, pool: PoolCounts) -> str:
    reason = without_device(job.device_key, pool)
    if reason is not None and pool.up == 0:
        return reason
    ahead = repos.turns.ahead_of(job.id, job.device_key)
    before = _before(ahead, len(repos.turns.measurements(job.device_key)))
    if reason is not None:
        return f"{reason}, and {before}" if before else reason
    turn = f"waiting for its turn on a device of {job.device_key}"
    return f"{turn}: {before}" if before else turn


def _before(ahead: Ahead, measurements: int) -> str:
    """Return what comes before the job; an empty text if nothing does."""
    jobs = f"{plural(ahead.higher, 'job')} of higher priority" if ahead.higher else plural(ahead.total, "job")
    waiting = [
        *([plural(measurements, "measurement of an artifact")] if measurements else []),
        *([jobs] if ahead.total else []),
    ]
    return f"{' and '.join(waiting)} before it" if waiting else ""
