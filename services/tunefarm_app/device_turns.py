"""Taking turns on devices: how a step waits for one, and who is woken when one becomes free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import UP_STATES, Job, Step

if TYPE_CHECKING:
    from tunefarm_app.step_context import StepContext  # it imports this module

log = structlog.stdlib.get_logger(__name__)

_LONGEST_WAIT_SEC = 10.0


def wake_next(repos: Repositories, device_key: str, *, except_job: str | None = None) -> Step | None:
    """Make the step that has waited longest for a device of this pool due now, and return it for sending.

    A job gets a new step after each round, so the oldest ready step is of the job that was served longest ago.

    Args:
        repos: The unit of work at hand.
        device_key: The pool.
        except_job: Whose device it was; that job sees to its own next step.
    """
    step = repos.steps.longest_waiting(device_key, except_job=except_job)
    return None if step is None else repos.steps.expedite(step.id)


def wait_for_device(context: StepContext, job: Job) -> None:
    """Hand the step back until a device may be free, and say so in the job's progress.

    Waiting is no failed attempt, and no time of the budget. The pauses grow, because whoever frees a device wakes
    the next (`wake_next`): looking again is for the case that this was missed.
    """
    waits = int(job.progress.get("waits", 0)) + 1
    delay_sec = min(context.services.settings.device_retry_sec * 1.3**waits, _LONGEST_WAIT_SEC)
    with context.services.uow.write() as repos:
        repos.steps.release(context.step.id, context.step.fence, delay_sec=delay_sec)
        counts = repos.devices.count_by_state(job.device_key)
        text = (
            f"waiting for a device: 0 of {sum(counts.get(state, 0) for state in UP_STATES)} online are free "
            f"({sum(counts.values())} in pool {job.device_key})"
        )
        repos.jobs.update(job.id, progress={**job.progress, "waiting": text, "waits": waits})
        if job.progress.get("waiting") != text:
            repos.events.add(job.id, "waiting", {"waiting": text, "device_key": job.device_key})
    log.info(text, delay_sec=round(delay_sec, 1))
