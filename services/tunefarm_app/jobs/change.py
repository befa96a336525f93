"""Change a job: its labels, and, while it runs, its priority and its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import structlog

from tunefarm_app.access.quotas import check_change
from tunefarm_app.jobs.terms import check_budget, parse_priority
from tunefarm_app.jobs.whole_budget import JobBudget, settled_limits
from tunefarm_app.leases.job_lock import locked_job
from tunefarm_app.models.labels import check_note, check_tags
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.job_options import own_wall_sec, searches
from tunefarm_db.states.job import JobState
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction, Job, Json, Step, StepKind
from tunefarm_text.job_terms import STOPS
from tunefarm_tuning.core.errors import ConflictError
from tunefarm_tuning.search.budget import Budget

log = structlog.stdlib.get_logger(__name__)

_NOTED = ("priority", "budget")
_LIMITS = frozenset(limit.name for limit in fields(Budget))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """Changes of a job; None changes nothing. Tags and note of an ended job can be changed, too.

    Attributes:
        priority: A number or a name; it takes effect with the next round of this job and of others.
        budget: Limits by their names in `JobBudget`; None removes a limit, others stay. Patience counts from the end of
            the present round.
        tags: The job's tags from now on.
        note: Its note.
    """

    priority: int | str | None = None
    budget: Mapping[str, float | None] | None = None
    tags: Sequence[str] | None = None
    note: str | None = None


def change_job(services: Services, job_id: str, change: JobChange) -> Job:
    """Change a job's labels, and priority or budget of one that has not ended: all that is named, or nothing.

    A job whose new budget is spent ends its search at the end of its round. One whose search a limit has ended goes
    back to it if that limit is raised before the compile is done: a running confirmation or compile is dropped.

    Raises:
        NotFoundError: ``job-not-found``.
        ConflictError: ``job-state`` if it has ended; ``search-ended`` if a budget can change nothing any more.
        QuotaError: ``quota-device-minutes``, ``quota-priority``, ``quota-own-jobs``.
        InvalidInputError: ``invalid-priority``, ``invalid-budget``, ``invalid-tag``, ``too-many-tags``, ``note-too-long``.
    """
    tags = None if change.tags is None else check_tags(change.tags)
    note = None if change.note is None else check_note(change.note)
    names_labels = tags is not None or note is not None
    if names_labels and change.priority is None and change.budget is None:
        with services.uow.write() as repos:
            before = repos.jobs.get(job_id)
            job = repos.jobs.label(job_id, tags=tags, note=note)
            _note_change(repos, before, job)
            return job
    with locked_job(services, job_id, with_steps=_has_searched) as held:
        following = _change(held.repos, held.job, held.steps, change)
        job = held.repos.jobs.label(job_id, tags=tags, note=note)
        _note_change(held.repos, held.job, job)
    log.info("job changed", job_id=job_id, priority=job.priority, budget=job.budget)
    if following is not None:
        services.dispatcher.send(following.id, following.kind)
    return job


def _note_change(repos: Repositories, before: Job, job: Job) -> None:
    """Note in the audit log what has changed, if anything has."""
    values: Json = {
        name: getattr(job, name) for name in _NOTED if getattr(job, name) != getattr(before, name)
    }
    labels = [name for name in ("tags", "note") if getattr(job, name) != getattr(before, name)]
    if values or labels or job.options != before.options:
        repos.audit.note(AuditAction.JOB_CHANGED, job.id, **values, labels=labels or None)


def _has_searched(job: Job) -> bool:
    """Return whether the job's search has ended; until then its steps need no change."""
    return job.stop_reason is not None


def _change(repos: Repositories, job: Job, steps: tuple[Step, ...], change: JobChange) -> Step | None:
    priority = job.priority if change.priority is None else parse_priority(change.priority)
    if job.state.is_finished:
        why = ": submit another job, which starts from this job's records" if change.budget else ""
        raise ConflictError(
            f"the job {job.state.clause} already{why}", code="job-state", state=job.state.value
        )
    check_change(repos, job, priority=priority, budget=_new_limits(job, change))
    if priority != job.priority:
        repos.events.add(job.id, "priority", {"before": job.priority, "priority": priority})
        repos.jobs.update(job.id, priority=priority)
        repos.jobs.catch_up(job.id)
    if change.budget is None:
        return None
    if not searches(job):
        raise ConflictError(
            "the job does not search: submit another job with this budget",
            code="search-ended",
            stop_reason="no-search",
        )
    asked = JobBudget(**(_new_limits(job, change) or {}))
    check_budget(asked)
    limits, options = settled_limits(asked.to_json(), job.options)
    budget = JobBudget(**limits)
    if (limits, options) == (JobBudget.from_json(job.budget).to_json(), job.options):
        return None
    following = None
    if job.stop_reason is not None:
        following = _search_on(repos, job, steps, budget)
    repos.jobs.update(job.id, budget=budget.to_json(), options=options)
    repos.events.add(job.id, "budget", {"before": job.budget, "budget": budget.to_json()})
    return following


def _new_limits(job: Job, change: JobChange) -> Json | None:
    """Return the budget that a change asks for; None if it leaves the budget."""
    if change.budget is None:
        return None
    return {**job.budget, "wall_sec": own_wall_sec(job), **change.budget}


def _search_on(repos: Repositories, job: Job, steps: tuple[Step, ...], budget: Budget) -> Step | None:
    """Continue a search that a limit has ended, if the new budget allows it.

    Returns:
        The step to be sent; None if the search stays ended, or the job is paused.
    """
    reason = str(job.stop_reason)
    (step,) = steps  # a job whose search has ended has exactly one open step
    before = Budget.from_json(job.budget)
    spent = budget.exhausted_by(
        trials=job.trials, wall_sec=job.tuned_sec, trials_since_improvement=job.trials_since_improvement
    )
    if reason not in _LIMITS or spent is not None or getattr(budget, reason) == getattr(before, reason):
        if step.kind is StepKind.CONFIRM:
            return None  # the remaining time limits that, too
        raise ConflictError(
            f"the search has ended ({STOPS.get(reason, reason)}), and this budget would not continue it",
            code="search-ended",
            stop_reason=reason,
        )
    paused = job.state is JobState.PAUSED
    repos.steps.cancel_open(job_id=job.id)
    progress: Json = {"phase": "tuning"}
    if paused:
        repos.jobs.update(
            job.id, stop_reason=None, progress={**job.progress, "paused_in": JobState.TUNING.value}
        )
    elif job.state is JobState.TUNING:
        repos.jobs.update(job.id, stop_reason=None, progress=progress)
    else:
        repos.jobs.move(job.id, JobState.TUNING, stop_reason=None, progress=progress)
    repos.events.add(job.id, "phase", {"phase": "tuning", "stop_reason": None})
    following = repos.steps.add_next(StepKind.TUNE, job)
    if paused:
        repos.steps.pause(job.id)
        return None
    repos.steps.mark_sent([following.id])
    return following
