"""Submit a job: everything that can be checked beforehand is checked before the job is queued."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from tunefarm_app.access.quotas import check_job
from tunefarm_app.jobs.terms import MAX_ROUND_SIZE, JobTerms, parse_priority, settle_terms
from tunefarm_app.models.labels import check_note, check_tags
from tunefarm_app.models.samples import keep_for_job, sample_ids
from tunefarm_app.models.submit import require_ready
from tunefarm_app.runtime.composition import Services
from tunefarm_app.settings import Settings
from tunefarm_app.storage.job_options import (
    baselines_of,
    max_error_of,
    precision_of,
    searches,
    wants_other_shapes,
)
from tunefarm_db.acting import acting
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction, Job, StepKind, Sweep
from tunefarm_text.job_terms import MAX_PRIORITY
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.measure.baselines.runtimes import parse_baselines
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.precision import Precision, parse_precision
from tunefarm_tuning.workload.quantisation import samples_needed

log = structlog.stdlib.get_logger(__name__)

_GPU_ROUNDS = 4
"""How many times as large a round is for a GPU: a round of eight left it idle for two thirds of a search on 16 cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest(JobTerms):
    """A user's request for a job: the model and the terms.

    Attributes:
        samples: Ids of the model's files of samples: the compiled network is compared and timed on them first.
        of: The job whose artifact so far this is, if it is one (`compile_now`).
        sweep: The sweep that it is a part of, if it is.
        again: The first of the jobs with these terms, if it is not the first (`again.run_again`).
        tags: Words to find the job by; they, and the `note`, are no terms of it.
    """

    model_id: str
    samples: Sequence[str] = ()
    of: str | None = None
    sweep: str | None = None
    again: str | None = None
    tags: Sequence[str] = ()
    note: str = ""

    @property
    def digest(self) -> str:
        """Hash of the request as it was received, before defaults were filled in."""
        target = dict(self.target) if isinstance(self.target, Mapping) else self.target
        budget = self.budget.to_json() if self.budget is not None else None
        terms: list[Any] = [self.model_id, budget, target, self.device_key]
        terms += [self.tuner, self.seed, self.round_size]
        if priority := parse_priority(self.priority):  # digests of older releases have no precision
            terms.append(priority)
        if (precision := parse_precision(self.precision)) is not Precision.AS_MODEL:
            terms.append(precision.value)
        if self.samples:
            terms.append({"samples": list(self.samples)})
        if self.max_error is not None:
            terms.append({"max_error": self.max_error})
        if not self.other_shapes:
            terms.append({"other_shapes": False})
        if baselines := parse_baselines(self.baselines):
            terms.append({"baselines": list(baselines)})
        text = json.dumps(terms, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """The job, and whether this submission created it; otherwise one with the same idempotency key did."""

    job: Job
    created: bool


def submit_job(
    services: Services, request: JobRequest, *, idempotency_key: str | None = None
) -> SubmittedJob:
    """Check the request, then add the job and its first step in one transaction.

    Raises:
        NotFoundError: ``model-not-found``, ``model-deleted`` or ``samples-not-found``.
        ConflictError: ``model-importing`` or ``samples-checking`` (wait), ``idempotency-key-reused``, ``no-devices``, ``no-linker``.
        InvalidInputError: ``model-failed``, ``invalid-budget``, ``unknown-tuner``, ``invalid-seed``,
            ``invalid-round-size``, ``unknown-device-key``, ``device-key-required``, ``unknown-target``,
            ``incompatible-target``, ``invalid-idempotency-key``, ``invalid-priority``, ``unknown-precision``,
            ``unsupported-precision``, ``samples-refused``, ``too-many-sample-files``, ``invalid-tag``,
            ``too-many-tags``, ``note-too-long``, ``invalid-max-error``, ``samples-needed``, ``unknown-baseline``.
        QuotaError: ``quota-open-jobs``, ``quota-device-minutes``, ``quota-priority``.
    """
    check_idempotency_key(idempotency_key)
    try:
        submitted, step_id = _add(services, request, idempotency_key)
    except ConflictError as error:
        if idempotency_key is None or error.code != "conflict":
            raise
        # Two requests with the same key came at once: the other one has created the job.
        submitted, step_id = _add(services, request, idempotency_key)
    if step_id is not None:
        log.info("job submitted", job_id=submitted.job.id, model_id=request.model_id)
        services.dispatcher.send(step_id, StepKind.EXTRACT)
    return submitted


def compile_now(services: Services, job_id: str) -> SubmittedJob:
    """Compile what is on record for a job, as a job of its own that does not search, while the first goes on.

    It comes before its job on devices, so it waits for no more than a round. While one is under way, no other is made.

    Raises:
        NotFoundError: ``job-not-found`` or ``model-deleted``.
        ConflictError, InvalidInputError: As `submit_job`.
    """
    with services.uow.read() as repos:
        job = repos.jobs.get(job_id)
    request = JobRequest(
        model_id=job.model_id,
        search=False,
        target=job.target,
        device_key=job.device_key,
        priority=min(job.priority + 1, MAX_PRIORITY),
        precision=precision_of(job).value,
        max_error=max_error_of(job),
        other_shapes=wants_other_shapes(job),
        baselines=baselines_of(job),
        samples=sample_ids(job.options),
        of=job.id,
        tags=job.tags,
    )
    return submit_job(services, request)


def _compile_under_way(repos: Repositories, job_id: str) -> Job | None:
    """Return the open job that compiles what a job has so far. That job is locked, so that no other process starts one."""
    job = repos.jobs.get(job_id, lock=True)
    return next(
        (
            other
            for other in repos.jobs.open(model_id=job.model_id)
            if other.options.get("of") == job.id or (other.id == job.id and not searches(job))
        ),
        None,
    )


def _add(
    services: Services, request: JobRequest, idempotency_key: str | None
) -> tuple[SubmittedJob, str | None]:
    with services.uow.write() as repos:
        if idempotency_key is not None:
            earlier = repos.jobs.find_by_idempotency_key(idempotency_key)
            if earlier is not None:
                check_same_request(earlier, request.digest, job_id=earlier.id)
                return SubmittedJob(job=earlier, created=False), None
        if request.of is not None and (under_way := _compile_under_way(repos, request.of)) is not None:
            return SubmittedJob(job=under_way, created=False), None
        job, step_id = add_job(services, repos, request, idempotency_key=idempotency_key)
        return SubmittedJob(job=job, created=True), step_id


def check_same_request(earlier: Job | Sweep, digest: str, **created: str) -> None:
    """Refuse a request whose idempotency key created something for another request, or for another API key; `created` names its id.

    Raises:
        ConflictError: ``idempotency-key-reused``.
    """
    if earlier.owner not in (None, acting().owner):
        raise ConflictError(
            "somebody else used this idempotency key: choose one that nobody guesses",
            code="idempotency-key-reused",
        )
    if earlier.request_digest != digest:
        raise ConflictError(
            "this idempotency key was used for a different request", code="idempotency-key-reused", **created
        )


def add_job(
    services: Services, repos: Repositories, request: JobRequest, *, idempotency_key: str | None = None
) -> tuple[Job, str]:
    """Add a job and its first step; return it, and the id of the step, which the caller sends after the commit.

    Raises:
        NotFoundError, ConflictError, InvalidInputError: As `submit_job`.
    """
    model = repos.models.get(request.model_id)
    require_ready(model)
    settled = settle_terms(repos, request)
    samples = keep_for_job(repos, model.id, request.samples)
    if parse_precision(request.precision) is Precision.INT8 and not samples:
        raise samples_needed()
    target = settled.target
    budget = request.budget.to_json() if request.budget is not None else {}
    priority = parse_priority(request.priority)
    # A compile of what a job has so far comes before it, for which its key needs no higher priority than the job has.
    checked = priority if request.of is None else repos.jobs.get(request.of).priority
    check_job(repos, priority=checked, budget=budget if request.search else None)
    baselines = parse_baselines(request.baselines)
    job = repos.jobs.add(
        model_id=model.id,
        target=target.to_json(),
        target_key=settled.target_key,
        device_key=settled.device_key,
        tuner=request.tuner,
        seed=request.seed,
        budget=budget,
        priority=priority,
        options={
            "round_size": request.round_size or _round_size(services.settings, target),
            "precision": parse_precision(request.precision).value,
            **({} if request.max_error is None else {"max_error": request.max_error}),
            "other_shapes": request.other_shapes,
            **({"baselines": list(baselines)} if baselines else {}),
            **({"samples": samples} if samples else {}),
            **({} if request.search else {"search": False}),
            **({} if request.of is None else {"of": request.of}),
            **({} if request.sweep is None else {"sweep": request.sweep}),
            **({} if request.again is None else {"again": request.again}),
        },
        idempotency_key=idempotency_key,
        request_digest=request.digest,
        tags=check_tags(request.tags),
        note=check_note(request.note),
    )
    repos.events.add(job.id, "queued", {"target": target.key, "device_key": job.device_key})
    if request.of is not None:
        repos.events.add(request.of, "compile-now", {"job_id": job.id})
    step = repos.steps.add(StepKind.EXTRACT, subject_id=job.id, model_id=model.id, job_id=job.id)
    repos.steps.mark_sent([step.id])
    repos.audit.note(
        AuditAction.JOB_SUBMITTED, job.id, model_id=model.id, of=request.of, sweep_id=request.sweep
    )
    return repos.jobs.get(job.id), step.id


def _round_size(settings: Settings, target: Target) -> int:
    """Return the default size of a job's rounds: larger where all cores of a worker compile for one GPU."""
    return min(settings.round_size * (_GPU_ROUNDS if target.kind == "cuda" else 1), MAX_ROUND_SIZE)


def check_idempotency_key(key: str | None) -> None:
    """Check a key by which a repeated request is known.

    Raises:
        InvalidInputError: ``invalid-idempotency-key``.
    """
    if key is not None and not (0 < len(key) <= 200 and key.isascii() and key.isprintable()):
        raise InvalidInputError(
            "an idempotency key is 1 to 200 printable ASCII characters", code="invalid-idempotency-key"
        )
