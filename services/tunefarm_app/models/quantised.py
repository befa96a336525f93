"""The networks that jobs compile: the model's own, or for precision int8 a quantised form of it.

A quantised form is made once for a model, its samples and the accuracy asked for, in the job's extract step, and kept with the model.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import replace

import structlog

from tunefarm_app.leases.step_context import StepContext
from tunefarm_app.models.samples import sample_ids
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.job_options import max_error_of, precision_of
from tunefarm_app.storage.pipelines import pipeline_of
from tunefarm_app.storage.rows import engine_model
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Job
from tunefarm_db.values import Model as ModelRow
from tunefarm_tuning.core.errors import InvariantError, NotFoundError
from tunefarm_tuning.process.scratch import ScratchDir
from tunefarm_tuning.target.target import Target
from tunefarm_tuning.workload.model import Model
from tunefarm_tuning.workload.precision import Precision
from tunefarm_tuning.workload.quantisation import DEFAULT_MAX_ERROR, Quantisation

log = structlog.stdlib.get_logger(__name__)

MEDIA_TYPE = "application/onnx"
_REVISION = 1
"""Raise it if the same samples and accuracy give another network."""


def job_pipeline(job: Job) -> str:
    """Return the name of a job's graph pipeline, under which the model's tasks are stored.

    The tasks of a quantised form are its own: two choices of samples may leave other products float.
    """
    pipeline = pipeline_of(Target.from_json(job.target), precision_of(job))
    terms = _terms(job)
    return pipeline if terms is None else f"{pipeline} {terms}"


def job_model(services: Services, job: Job, row: ModelRow) -> Model:
    """Return the network that a job compiles, after its extract step.

    Raises:
        NotFoundError: ``quantised-not-found``.
    """
    with services.uow.read() as repos:
        model = _known(services, repos, job, row)
    if model is None:
        raise NotFoundError(
            "the job's quantised network is missing: start another job on the same terms, which creates it again",
            code="quantised-not-found",
        )
    return model


def make_job_model(context: StepContext, job: Job, row: ModelRow) -> Model:
    """Return the network that a job compiles; quantise it if no earlier job did so on the same terms.

    Raises:
        InvalidModelError, InvalidInputError: As `quantise_model`.
        NotFoundError: ``samples-not-found``.
    """
    services, terms = context.services, _terms(job)
    if terms is None:
        return engine_model(services.blobs, row)
    with services.uow.read() as repos:
        known = _known(services, repos, job, row)
        if known is not None:
            return known
        samples = [repos.samples.get(row.id, samples_id) for samples_id in sample_ids(job.options)]
    with closing(ScratchDir()) as scratch:
        quantised = context.engine.quantise(
            engine_model(services.blobs, row),
            [services.blobs.path(sample_file.sha256) for sample_file in samples],
            max_error=max_error_of(job) or DEFAULT_MAX_ERROR,
            output=scratch.path / "quantised.onnx",
            cancellation=context.cancellation,
        )
        blob = services.blobs.put_file(quantised.path)
    quantisation = quantised.quantisation
    if quantisation is None:
        raise InvariantError("the engine quantised a model and does not say how")
    with context.note() as repos:
        if (first := _known(services, repos, job, row)) is not None:  # another job was faster
            return first
        repos.blobs.add(blob.sha256, size_bytes=blob.size_bytes, media_type=MEDIA_TYPE)
        services.blobs.path(blob.sha256)  # raises if a sweep removed the bytes meanwhile
        repos.quantised.store(row.id, terms, sha256=blob.sha256, quantisation=quantisation.to_json())
        repos.events.add(
            job.id,
            "quantised",
            {
                "products": quantisation.products,
                "kept": quantisation.kept,
                "error": quantisation.worst.mean,
                "max_error": quantisation.max_error,
            },
        )
    log.info("model quantised", products=quantisation.products, kept=quantisation.kept)
    return replace(quantised, path=services.blobs.path(blob.sha256))


def _known(services: Services, repos: Repositories, job: Job, row: ModelRow) -> Model | None:
    """Return the job's network; None if it is a quantised form that is still to be made."""
    model, terms = engine_model(services.blobs, row), _terms(job)
    if terms is None:
        return model
    known = repos.quantised.find(row.id, terms)
    if known is None:
        return None
    try:
        path = services.blobs.path(known.sha256)
    except NotFoundError:
        return None
    return replace(
        model,
        path=path,
        sha256=known.sha256,
        quantisation=Quantisation.from_json(known.quantisation),
    )


def _terms(job: Job) -> str | None:
    """Return a digest of what decides the quantised form of a job's model; None if the job compiles the model as it is."""
    if precision_of(job) is not Precision.INT8:
        return None
    terms = [_REVISION, sorted(sample_ids(job.options)), max_error_of(job) or DEFAULT_MAX_ERROR]
    return hashlib.sha256(json.dumps(terms).encode()).hexdigest()[:16]
