"""Sweeps: models x pools x precisions as jobs of one request, with one budget, cancelled together.

The rule by which the budget is shared is `SWEEP_RULE` in `tunefarm_text.job_terms`; `shares` applies it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import structlog

from tunefarm_app.jobs.control import cancel_job
from tunefarm_app.jobs.submit import JobRequest, add_job, check_idempotency_key, check_same_request
from tunefarm_app.jobs.terms import JobTerms, check_budget, settle_terms
from tunefarm_app.jobs.whole_budget import JobBudget
from tunefarm_app.models.labels import check_note, check_tags
from tunefarm_app.models.samples import keep_for_job
from tunefarm_app.models.submit import require_ready
from tunefarm_app.runtime.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction, Model, NewSweepCell, StepKind, Sweep
from tunefarm_text.job_terms import MAX_SWEEP_JOBS
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, TunefarmError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.workload.precision import Precision, parse_precision
from tunefarm_tuning.workload.quantisation import samples_needed

log = structlog.stdlib.get_logger(__name__)

_OF_ONE_CELL = frozenset(
    {
        "model-failed",
        "model-deleted",
        "samples-needed",
        "samples-refused",
        "too-many-sample-files",
        "unsupported-precision",
        "incompatible-target",
    }
)
"""Codes of errors that are about one combination; another error is a mistake in the request."""
_LONGEST_NAME, _LONGEST_MESSAGE = 200, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedFile:
    """A file that the farm did not take: it gets a row of its own in the sweep, with the reason."""

    name: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """A user's request for a sweep.

    Attributes:
        model_ids: The models; their ids.
        device_keys: The pools; empty for the farm's only one.
        precisions: The formats of weights; empty for the models' own.
        terms: The other terms, with the budget of the whole sweep.
        samples: Ids of files of samples, by the id of the model that they belong to.
        refused: Files that were not taken.
    """

    model_ids: Sequence[str]
    device_keys: Sequence[str] = ()
    precisions: Sequence[str] = ()
    terms: JobTerms = field(default_factory=JobTerms)
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    refused: Sequence[RefusedFile] = ()
    tags: Sequence[str] = ()
    note: str = ""

    @property
    def digest(self) -> str:
        """Hash of the request, to tell a repeated one from another under the same idempotency key."""
        budget = None if self.terms.budget is None else self.terms.budget.to_json()
        refused = [asdict(file) for file in self.refused]
        terms = {**asdict(replace(self.terms, budget=None)), "budget": budget}
        if not terms["baselines"]:  # digests of older releases have none
            del terms["baselines"]
        parts: list[Any] = [
            list(self.model_ids),
            list(self.device_keys),
            list(self.precisions),
            terms,
            refused,
        ]
        if self.samples:  # digests of older releases have none
            parts.append({model_id: list(ids) for model_id, ids in self.samples.items()})
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedSweep:
    """The sweep, and whether this submission created it; otherwise one with the same idempotency key did."""

    sweep: Sweep
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """A combination, with the terms of its job, or with the reason why it has none."""

    model: Model
    terms: JobTerms
    error: TunefarmError | None


def submit_sweep(
    services: Services, request: SweepRequest, *, idempotency_key: str | None = None
) -> SubmittedSweep:
    """Add a sweep with its jobs, in one transaction. A combination that cannot be tuned gets no job, but a reason.

    Raises:
        NotFoundError: ``model-not-found``, ``samples-not-found``.
        ConflictError: ``model-importing`` or ``samples-checking`` (wait), ``no-devices``, ``idempotency-key-reused``.
        InvalidInputError: ``empty-sweep`` if no combination can be tuned, ``too-many-jobs``, and as `submit_job`.
    """
    check_idempotency_key(idempotency_key)
    try:
        submitted, step_ids = _add(services, request, idempotency_key)
    except ConflictError as error:
        if idempotency_key is None or error.code != "conflict":
            raise
        # Two requests with the same key came at once: the other one has created the sweep.
        submitted, step_ids = _add(services, request, idempotency_key)
    if submitted.created:
        log.info("sweep submitted", sweep_id=submitted.sweep.id, jobs=len(step_ids))
    for step_id in step_ids:
        services.dispatcher.send(step_id, StepKind.EXTRACT)
    return submitted


def _add(
    services: Services, request: SweepRequest, idempotency_key: str | None
) -> tuple[SubmittedSweep, list[str]]:
    """Add a sweep with its jobs; return it, and the ids of their first steps. Or return the one that the key created."""
    tags, note = check_tags(request.tags), check_note(request.note)
    step_ids: list[str] = []
    with services.uow.write() as repos:
        if idempotency_key is not None:
            earlier = repos.sweeps.find_by_idempotency_key(idempotency_key)
            if earlier is not None:
                check_same_request(earlier, request.digest, sweep_id=earlier.id)
                return SubmittedSweep(sweep=earlier, created=False), []
        cells = list(_cells(repos, request))
        if all(cell.error is not None for cell in cells):
            reasons = [cell.error.message for cell in cells if cell.error] or [
                file.message for file in request.refused
            ]
            raise InvalidInputError(
                f"no job of the sweep can start: {clean((reasons or ['it has no model, so choose some'])[0], 300)}",
                code="empty-sweep",
                reasons=[clean(reason, 300) for reason in reasons[:20]],
            )
        names = _names(cell.model for cell in cells)
        budgets = shares([cell.terms for cell in cells if cell.error is None])
        sweep = repos.sweeps.add(
            budget=request.terms.budget.to_json() if request.terms.budget is not None else {},
            tags=tags,
            note=note,
            idempotency_key=idempotency_key,
            request_digest=request.digest,
        )
        rows = []
        for cell in cells:
            job_id = None
            if cell.error is None:
                terms = replace(cell.terms, budget=next(budgets))
                named = {name: getattr(terms, name) for name in JobTerms.__dataclass_fields__}
                job = JobRequest(
                    model_id=cell.model.id,
                    samples=request.samples.get(cell.model.id, ()),
                    sweep=sweep.id,
                    tags=tags,
                    note=note,
                    **named,
                )
                added, step_id = add_job(services, repos, job)
                job_id = added.id
                step_ids.append(step_id)
            rows.append(
                NewSweepCell(
                    model_id=cell.model.id,
                    model_name=names[cell.model.id],
                    device_key=cell.terms.device_key or "",
                    precision=parse_precision(cell.terms.precision).value,
                    job_id=job_id,
                    error=None if cell.error is None else cell.error.to_json(),
                )
            )
        repos.audit.note(AuditAction.SWEEP_SUBMITTED, sweep.id, jobs=len(step_ids))
        repos.sweeps.add_cells(sweep.id, [*rows, *(_refused(file) for file in request.refused)])
    return SubmittedSweep(sweep=sweep, created=True), step_ids


def _cells(repos: Repositories, request: SweepRequest) -> Iterator[_Cell]:
    models = [repos.models.get(model_id, deleted=True) for model_id in dict.fromkeys(request.model_ids)]
    if strangers := sorted(set(request.samples) - {model.id for model in models}):
        raise InvalidInputError(
            f"samples are given for {strangers[0]}, which is not a model of the sweep", code="invalid-request"
        )
    pools: list[str | None] = [*dict.fromkeys(request.device_keys)] or [None]
    precisions = list(dict.fromkeys(parse_precision(name).value for name in request.precisions or (None,)))
    count = len(models) * len(pools) * len(precisions) + len(request.refused)
    if count > MAX_SWEEP_JOBS:
        raise InvalidInputError(
            f"{len(models)} models, {len(pools)} pools and {len(precisions)} precisions are {count} jobs: a sweep has at most "
            f"{MAX_SWEEP_JOBS}",
            code="too-many-jobs",
            limit=MAX_SWEEP_JOBS,
        )
    for model, pool, precision in product(models, pools, precisions):
        terms = replace(request.terms, device_key=pool, precision=precision)
        errors: list[TunefarmError] = []
        with _refusals(errors):
            repos.models.get(model.id)
            require_ready(model)
            keep_for_job(repos, model.id, request.samples.get(model.id, ()))
        with _refusals(errors):
            if precision == Precision.INT8 and not request.samples.get(model.id):
                raise samples_needed()
            terms = replace(terms, device_key=settle_terms(repos, terms).device_key)
        yield _Cell(model=model, terms=terms, error=errors[0] if errors else None)


def _names(models: Iterable[Model]) -> dict[str, str]:
    """Return what the models are called in the sweep, by id: with the version where two have one name."""
    by_id = {model.id: model for model in models}
    uses = Counter(model.name for model in by_id.values())
    return {
        model.id: model.name if uses[model.name] == 1 else f"{model.name}@{model.version}"
        for model in by_id.values()
    }


@contextmanager
def _refusals(errors: list[TunefarmError]) -> Iterator[None]:
    """Collect an error of the block that is about one combination; let others pass."""
    try:
        yield
    except TunefarmError as error:
        if error.code not in _OF_ONE_CELL:
            raise
        errors.append(error)


def shares(jobs: Sequence[JobTerms]) -> Iterator[JobBudget | None]:
    """Yield each job's share of the budget, which all of them name; None where there is no search.

    Raises:
        InvalidInputError: ``invalid-budget`` if there are fewer trials than jobs.
    """
    in_pool = Counter(job.device_key for job in jobs)
    for job in jobs:
        if job.budget is None:
            yield None
            continue
        check_budget(job.budget)
        limits = job.budget.to_json()
        of_pool = {name: limits[name] for name in ("job_sec", "wall_sec") if limits.get(name) is not None}
        limits |= {name: float(str(limit)) / in_pool[job.device_key] for name, limit in of_pool.items()}
        if job.budget.trials is not None:
            if job.budget.trials < len(jobs):
                raise InvalidInputError(
                    f"{job.budget.trials} trials are too few for {len(jobs)} jobs, which share them: {len(jobs)} is the least",
                    code="invalid-budget",
                    limit="trials",
                )
            limits["trials"] = job.budget.trials // len(jobs)
        yield JobBudget(**limits)


def _refused(file: RefusedFile) -> NewSweepCell:
    error = InvalidInputError(clean(file.message, _LONGEST_MESSAGE), code=clean(file.code, 100))
    return NewSweepCell(
        model_id=None,
        model_name=clean(file.name, _LONGEST_NAME),
        device_key="",
        precision="",
        error=error.to_json(),
    )


def cancel_sweep(services: Services, sweep_id: str) -> Sweep:
    """Cancel all jobs of a sweep that have not ended. What they measured stays, and so do the artifacts of the others.

    A sweep whose jobs have all ended stays as it is.

    Raises:
        NotFoundError: ``sweep-not-found``.
    """
    with services.uow.write() as repos:
        repos.sweeps.get(sweep_id)
        open_jobs = [job for job in repos.sweeps.jobs([sweep_id]).values() if not job.state.is_finished]
        if open_jobs:
            repos.sweeps.set_cancelled(sweep_id)
            repos.audit.note(AuditAction.SWEEP_CANCELLED, sweep_id)
    for job in open_jobs:
        cancel_job(services, job.id)
    log.info("sweep cancelled", sweep_id=sweep_id, jobs=len(open_jobs))
    with services.uow.read() as repos:
        return repos.sweeps.get(sweep_id)
