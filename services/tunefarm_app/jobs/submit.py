"""Submitting a job: everything that can be known to be wrong is said now, before anything is queued."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import structlog

from tunefarm_app.jobs.priority import parse_priority
from tunefarm_app.runtime.composition import Services
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import UP_STATES, Device, Job, Model, ModelState, StepKind
from tunefarm_text.job_terms import DEFAULT_TUNER, TUNERS
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.search.budget import Budget
from tunefarm_tuning.target.gpu import plain_arch
from tunefarm_tuning.target.parse import parse_target
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.precision import Precision, parse_precision

log = structlog.stdlib.get_logger(__name__)

MAX_SEED = (1 << 63) - 1
MAX_ROUND_SIZE = 256
MAX_TRIALS = (1 << 31) - 1
MAX_WALL_SEC = 366 * 86400.0
_MOST: dict[str, float] = {
    "trials": MAX_TRIALS,
    "wall_sec": MAX_WALL_SEC,
    "patience_trials": MAX_TRIALS,
    "min_gain_per_min": 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """What a user asks for, whatever the model.

    Attributes:
        target: A target's name, JSON or dict; None or ``"host"`` is what the pool's devices report about themselves.
        device_key: The pool to measure on; may be left out where there is only one.
        round_size: Candidates of one tuning step; the server's default where it is left out.
        priority: Jobs with a higher one get devices first; a number, or a name in `PRIORITIES`.
        precision: How large weights are stored: one of `Precision`; as in the model where it is left out.
    """

    budget: Budget
    target: str | Mapping[str, Any] | None = None
    device_key: str | None = None
    tuner: str = DEFAULT_TUNER
    seed: int = 0
    round_size: int | None = None
    priority: int | str = 0
    precision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest(JobTerms):
    """What a user asks for, with the model."""

    model_id: str

    @property
    def digest(self) -> str:
        """Hash of the request as it was asked, before defaults were filled in."""
        target = dict(self.target) if isinstance(self.target, Mapping) else self.target
        asked: list[Any] = [self.model_id, self.budget.to_json(), target, self.device_key]
        asked += [self.tuner, self.seed, self.round_size]
        if priority := parse_priority(self.priority):  # digests of older releases know of none
            asked.append(priority)
        if (precision := parse_precision(self.precision)) is not Precision.AS_MODEL:
            asked.append(precision.value)
        text = json.dumps(asked, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """The job, and whether this submission made it (or a former one with the same idempotency key)."""

    job: Job
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledTerms:
    """What terms come to: the pool that measures, and the target."""

    device_key: str
    target: Target


def check_terms(services: Services, terms: JobTerms) -> SettledTerms:
    """Check all of a request but the model, which may be large and not here yet. Nothing is written.

    Raises:
        ConflictError, InvalidInputError: As `submit_job`.
    """
    with services.uow.read() as repos:
        return _settle(repos, terms)


def submit_job(
    services: Services, request: JobRequest, *, idempotency_key: str | None = None
) -> SubmittedJob:
    """Check the request, then add the job and its first step in one transaction.

    Raises:
        NotFoundError: ``model-not-found`` or ``model-deleted``.
        ConflictError: ``model-importing`` (wait), ``idempotency-key-reused``, ``no-devices``.
        InvalidInputError: ``model-failed``, ``invalid-budget``, ``unknown-tuner``, ``invalid-seed``,
            ``invalid-round-size``, ``unknown-device-key``, ``device-key-required``, ``unknown-target``,
            ``incompatible-target``, ``invalid-idempotency-key``, ``invalid-priority``, ``unknown-precision``,
            ``unsupported-precision``.
    """
    _check_idempotency_key(idempotency_key)
    try:
        submitted, step_id = _add(services, request, idempotency_key)
    except ConflictError as error:
        if idempotency_key is None or error.code != "conflict":
            raise
        # The same key came in twice at once: now there is the other's job to be found.
        submitted, step_id = _add(services, request, idempotency_key)
    if step_id is not None:
        log.info("job submitted", job_id=submitted.job.id, model_id=request.model_id)
        services.dispatcher.send(step_id, StepKind.EXTRACT)
    return submitted


def _add(
    services: Services, request: JobRequest, idempotency_key: str | None
) -> tuple[SubmittedJob, str | None]:
    with services.uow.write() as repos:
        if idempotency_key is not None:
            earlier = repos.jobs.find_by_idempotency_key(idempotency_key)
            if earlier is not None:
                if earlier.request_digest != request.digest:
                    raise ConflictError(
                        "this idempotency key was used for another request",
                        code="idempotency-key-reused",
                        job_id=earlier.id,
                    )
                return SubmittedJob(job=earlier, created=False), None
        model = repos.models.get(request.model_id)
        _check_model(model)
        settled = _settle(repos, request)
        target = settled.target
        job = repos.jobs.add(
            model_id=model.id,
            target=target.to_json(),
            target_key=target.key,
            device_key=settled.device_key,
            tuner=request.tuner,
            seed=request.seed,
            budget=request.budget.to_json(),
            priority=parse_priority(request.priority),
            options={
                "round_size": request.round_size or services.settings.round_size,
                "precision": parse_precision(request.precision).value,
            },
            idempotency_key=idempotency_key,
            request_digest=request.digest,
        )
        repos.events.add(job.id, "queued", {"target": target.key, "device_key": job.device_key})
        step = repos.steps.add(StepKind.EXTRACT, subject_id=job.id, model_id=model.id, job_id=job.id)
        repos.steps.mark_sent([step.id])
        return SubmittedJob(job=repos.jobs.get(job.id), created=True), step.id


def _check_idempotency_key(key: str | None) -> None:
    if key is not None and not (0 < len(key) <= 200 and key.isascii() and key.isprintable()):
        raise InvalidInputError(
            "an idempotency key is 1 to 200 printable ASCII characters", code="invalid-idempotency-key"
        )


def _check_model(model: Model) -> None:
    if model.state is ModelState.IMPORTING:
        raise ConflictError(
            "the model is still being imported: wait until its state is ready",
            code="model-importing",
            model_id=model.id,
        )
    if model.state is ModelState.FAILED:
        why = (model.error or {}).get("message", "")
        raise InvalidInputError(
            f"the model could not be imported: {why}",
            code="model-failed",
            model_id=model.id,
            error=model.error,
        )


def _settle(repos: Repositories, terms: JobTerms) -> SettledTerms:
    _check_options(terms)
    device = _device_of(repos, terms.device_key)
    target = _target_of(terms.target, device)
    parse_precision(terms.precision, target)
    return SettledTerms(device_key=device.device_key, target=target)


def check_budget(budget: Budget) -> None:
    """Refuse limits that nobody means, and that the search cannot count with.

    Raises:
        InvalidInputError: ``invalid-budget``.
    """
    for name, most in _MOST.items():
        asked = getattr(budget, name)
        if asked is not None and not math.isfinite(asked):
            raise InvalidInputError(
                f"budget: {name} must be a finite number", code="invalid-budget", limit=name
            )
        if asked is not None and asked > most:
            raise InvalidInputError(
                f"budget: {name} must be at most {most:.0f}", code="invalid-budget", limit=name
            )


def _check_options(request: JobTerms) -> None:
    check_budget(request.budget)
    if request.tuner not in TUNERS:
        raise InvalidInputError(
            f"there is no tuner {clean(request.tuner, 40)!r}; {_nearest(request.tuner, TUNERS)}",
            code="unknown-tuner",
            known=list(TUNERS),
        )
    parse_priority(request.priority)
    parse_precision(request.precision)
    if not 0 <= request.seed <= MAX_SEED:
        raise InvalidInputError(f"the seed must be between 0 and {MAX_SEED}", code="invalid-seed")
    if request.round_size is not None and not 1 <= request.round_size <= MAX_ROUND_SIZE:
        raise InvalidInputError(
            f"round_size must be between 1 and {MAX_ROUND_SIZE}", code="invalid-round-size"
        )


def _device_of(repos: Repositories, device_key: str | None) -> Device:
    """Return a device that stands for its pool: one that is online, if any is."""
    known = repos.devices.keys()
    if not known:
        raise ConflictError(
            "no device has been registered yet: start one with `tunefarm device join`", code="no-devices"
        )
    if device_key is None:
        if len(known) > 1:
            raise InvalidInputError(
                f"name a device key: there are {_some(known)}", code="device-key-required", known=list(known)
            )
        device_key = known[0]
    if device_key not in known:
        raise InvalidInputError(
            f"there is no device key {clean(device_key, 60)!r}; {_nearest(device_key, known)}",
            code="unknown-device-key",
            known=list(known),
        )
    pool = repos.devices.in_pool(device_key)
    return max(pool, key=lambda d: (d.state in UP_STATES, d.last_seen_at))


def _target_of(asked: str | Mapping[str, Any] | None, device: Device) -> Target:
    own = Target.from_json(device.target)
    if asked is None or (isinstance(asked, str) and asked.strip() == "host"):
        return own
    target = parse_target(asked)
    if target.kind != own.kind:
        raise _incompatible(
            f"the target {clean(target.key)} is of kind {target.kind}, but the devices of {device.device_key} "
            f"are of kind {own.kind} ({own.key})",
            target,
            own,
        )
    if target.kind == "cuda" and _arch(target) != _arch(own):
        # Libraries hold machine code, and nothing that a driver could translate.
        raise _incompatible(
            f"the target is for GPUs of {clean(_arch(target), 20)}, and those of {device.device_key} are "
            f"{clean(_arch(own), 20)}: leave the target out, or say cuda/{clean(_arch(own), 20)}",
            target,
            own,
        )
    return target


def _incompatible(message: str, target: Target, own: Target) -> InvalidInputError:
    return InvalidInputError(
        message, code="incompatible-target", target=clean(target.key), device_target=own.to_json()
    )


def _arch(target: Target) -> str:
    return plain_arch(str(target.get("arch")))


def _nearest(text: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(text, known, n=3, cutoff=0.4)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {_some(known)}"


def _some(names: tuple[str, ...], limit: int = 10) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
