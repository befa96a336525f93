"""Taking turns on devices: who gets one that is free, how the others wait, and who is woken next.

The job of the highest priority comes first; among equals, the one that had the least device time (`Jobs.catch_up`
sees to it that a newcomer does not make up for all that others had before). A job holds a device for one round, so a
job that comes first has it at the next round's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tunefarm_app.leases.lanes import ends_without_device
from tunefarm_app.leases.wait_reason import FOR_A_WORKER
from tunefarm_db.repositories.jobs.turns import Ahead
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job, Json, PoolCounts, Step

if TYPE_CHECKING:
    from tunefarm_app.leases.step_context import StepContext  # it imports this module

log = structlog.stdlib.get_logger(__name__)

_LONGEST_WAIT_SEC = 10.0
_LOOKS_BEFORE_TELLING = 3
"""Jobs that share devices wait for a moment at every turn: an event tells of it only where it lasts."""


def wake_next(repos: Repositories, device_key: str) -> Step | None:
    """Make a step due now whose turn it is on a free device of this pool, and return it for sending.

    None where there is none, or all of them are due and sent already.
    """
    free = repos.devices.counts(device_key).free
    steps = repos.turns.next_of(device_key, free) if free else ()
    now = repos.now() if steps else 0.0
    asleep = [step.id for step in steps if step.not_before > now or step.sent_at is None]
    return repos.steps.expedite(asleep[0]) if asleep else None


def may_take(repos: Repositories, job_id: str, device_key: str) -> bool:
    """Return whether there are more free devices in the pool than jobs that wait and come before this one."""
    ahead = repos.turns.ahead_of(job_id, device_key).total
    return ahead == 0 or repos.devices.counts(device_key).free > ahead


def wait_for_device(context: StepContext, job: Job) -> None:
    """Hand the step back until it may have a device, and say in the job's progress what it waits for.

    Waiting is no failed attempt, and no time of the budget. The pauses grow, because whoever frees a device wakes
    the next (`wake_next`): looking again is for the case that this was missed.
    """
    waits = int(job.progress.get("waits", 0)) + 1
    delay_sec = min(context.services.settings.device_retry_sec * 1.3**waits, _LONGEST_WAIT_SEC)
    with context.services.uow.write() as repos:
        repos.steps.hold(context.step.id, context.step.fence)
        job = repos.jobs.get(job.id, lock=True)
        if ends_without_device(repos, context.step, job):
            log.info("lane ends: its job has devices enough")
            return
        repos.steps.release(context.step.id, context.step.fence, delay_sec=delay_sec)
        if not repos.steps.at_work(job.id):
            _tell(repos, job, waits)
        # A device may be free, for somebody who does not know it yet.
        woken = wake_next(repos, job.device_key)
    if woken is not None:
        context.following.append(woken)
    log.info("waiting for a device", delay_sec=round(delay_sec, 1))


def _tell(repos: Repositories, job: Job, waits: int) -> None:
    pool = repos.devices.counts(job.device_key)
    text = _why(repos, job, pool)
    told = None if job.progress.get("waiting_told") == FOR_A_WORKER else job.progress.get("waiting_told")
    if told != text and (pool.up == 0 or waits == _LOOKS_BEFORE_TELLING):
        repos.events.add(job.id, "waiting", {"waiting": text, "device_key": job.device_key})
        told = text
    progress: Json = {**job.progress, "waiting": text, "waits": waits, "waiting_told": told}
    repos.jobs.update(job.id, progress=progress)


def _why(repos: Repositories, job: Job, pool: PoolCounts) -> str:
    if pool.up == 0:
        return f"waiting for a device of {job.device_key}: {pool}"
    ahead = repos.turns.ahead_of(job.id, job.device_key)
    if pool.free == 0:
        before = f", and {_jobs(ahead)} before it" if ahead.total else ""
        return (
            f"waiting for a device of {job.device_key}: {pool.up} of {pool.total} online, all at work{before}"
        )
    return f"waiting for its turn on a device of {job.device_key}: {_jobs(ahead)} before it"


def _jobs(ahead: Ahead) -> str:
    if ahead.higher:
        return f"{ahead.higher} {'job' if ahead.higher == 1 else 'jobs'} of higher priority"
    return f"{ahead.total} {'job' if ahead.total == 1 else 'jobs'}"
