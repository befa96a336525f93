"""Submitting a model whose bytes are in the store: register it and plan its import."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from tunefarm_app.models.removal import remove_unreferenced
from tunefarm_app.runtime.composition import Services
from tunefarm_app.storage.blob_store import HEAD_BYTES, StoredBlob
from tunefarm_convert import check_file, check_head
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import AuditAction, Model, ModelState, StepKind
from tunefarm_tuning.core.errors import ConflictError, InvalidInputError, InvalidModelError
from tunefarm_tuning.core.spans import Span, SpanKind
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.workload import revisions
from tunefarm_tuning.workload.binding import Binding
from tunefarm_tuning.workload.shapes import GivenShape, StoredShape, stored_shape

log = structlog.stdlib.get_logger(__name__)

MEDIA_TYPE = "application/x-onnx"

_RETRIED_CODES = frozenset(
    {"import-timeout", "import-memory", "import-crashed", "step-abandoned", "internal"}
)
"""Failures that the machine may have caused: a new upload of the model is imported again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedModel:
    """The model, and whether this submission created it; otherwise the farm had it already."""

    model: Model
    created: bool


def check_shapes(shapes: Mapping[str, GivenShape]) -> dict[str, StoredShape]:
    """Return shapes given for inputs as they are stored; whether the model has such inputs is not known yet.

    Raises:
        InvalidInputError: ``bad-shape`` or ``too-many-shapes``.
    """
    if "" in shapes:
        raise InvalidInputError("a shape is given for an input without a name", code="bad-shape", input="")
    return {name: stored_shape(shape, name=name) for name, shape in shapes.items()}


def check_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values given for inputs as JSON; whether the model has such inputs is not known yet.

    Raises:
        InvalidInputError: ``bad-value``.
    """
    checked: dict[str, Any] = Binding.of(None, values).to_json()["values"]
    return checked


def submit_model(
    services: Services,
    *,
    name: str,
    blob: StoredBlob,
    shapes: Mapping[str, GivenShape] | None = None,
    values: Mapping[str, Any] | None = None,
    began: float | None = None,
    replaces: bool = True,
) -> SubmittedModel:
    """Register the stored blob as a model and plan its import, in one transaction.

    The same bytes with the same shapes and values are the same model: it is returned as it is, unless its import failed for a
    reason that may have passed, or in an older release; then it is imported again.

    Args:
        services: The process's services.
        name: A name for people, often the file's.
        blob: The stored file, from `BlobWriter.commit`.
        shapes: Shapes of inputs with open dimensions, by input name.
        values: Values of inputs that become constants, by input name.
        began: When the upload began, in Unix seconds, for the trace; None where that is not known.
        replaces: Whether a new model takes the place of those that the same owner uploaded, under the same name, with shapes or values
            that did not fit.

    Raises:
        InvalidModelError: ``empty-file``, ``truncated-model`` or ``not-protobuf``; the blob is removed.
        InvalidInputError: ``bad-shape``, ``too-many-shapes`` or ``bad-value`` (call `check_shapes` and `check_values` before
            the upload to know it sooner).
    """
    try:
        check_head(blob.head)
        _check_end(services.blobs.path(blob.sha256))
    except InvalidModelError:
        services.blobs.delete(blob.sha256)  # nobody else can use it: these bytes are always refused
        raise
    stored, constants = check_shapes(shapes or {}), check_values(values or {})
    register = partial(
        _register, services, clean(name) or "model", blob, stored, constants, replaces=replaces
    )
    try:
        submitted, step_id = register()
    except ConflictError:
        # Another submission registered the same model in between: return that one.
        submitted, step_id = register()
    if submitted.model.state is ModelState.FAILED:
        remove_unreferenced(services, blob.sha256)
    if step_id is not None:
        _note_upload(services, submitted.model, began)
        log.info("model submitted", model_id=submitted.model.id, size_bytes=blob.size_bytes)
        services.dispatcher.send(step_id, StepKind.IMPORT)
    return submitted


def _check_end(path: Path) -> None:
    """Refuse a file that is cut off. Of another one that is wrong, its import says more."""
    try:
        check_file(path)
    except InvalidModelError as error:
        if error.code == "truncated-model":
            raise


def _register(
    services: Services,
    name: str,
    blob: StoredBlob,
    shapes: Mapping[str, StoredShape],
    values: Mapping[str, Any],
    *,
    replaces: bool,
) -> tuple[SubmittedModel, str | None]:
    with services.uow.write() as repos:
        repos.blobs.add(blob.sha256, size_bytes=blob.size_bytes, media_type=MEDIA_TYPE)
        model = repos.models.find(blob.sha256, shapes, values)
        created = model is None
        round_ = 0
        if model is None:
            model = repos.models.add(
                name=name, sha256=blob.sha256, size_bytes=blob.size_bytes, shapes=shapes, values=values
            )
            if replaces:
                model = _replace_unbound(repos, model)
        elif model.state is ModelState.FAILED and _may_succeed_now(model):
            model = repos.models.set_importing(model.id)
            round_ = repos.steps.next_round(StepKind.IMPORT, model.id)
        else:
            return SubmittedModel(model=model, created=False), None
        step = repos.steps.add(StepKind.IMPORT, subject_id=model.id, model_id=model.id, round=round_)
        services.blobs.path(blob.sha256)  # raises if a sweep removed the bytes meanwhile
        repos.steps.mark_sent([step.id])  # if sending fails, the reconciler sends it again
        repos.audit.note(AuditAction.MODEL_SUBMITTED, model.id, sha256=blob.sha256)
        return SubmittedModel(model=model, created=created), step.id


def _may_succeed_now(model: Model) -> bool:
    """Return whether a failed import may succeed now: the machine may have caused it, or the importer has changed."""
    return (model.error or {}).get("code") in _RETRIED_CODES or model.revision != revisions.IMPORTER


def _replace_unbound(repos: Repositories, model: Model) -> Model:
    """Delete what `model` takes the place of, and let it take the version of the oldest of them that no other version follows."""
    for failed in repos.models.unbound(model):
        repos.models.delete(failed.id)
        repos.audit.note(AuditAction.MODEL_DELETED, failed.id, replaced_by=model.id)
        if failed.version == model.version - 1:
            repos.models.take_version(model.id, of=failed)
            model = repos.models.get(model.id)
    return model


def _note_upload(services: Services, model: Model, began: float | None) -> None:
    if began is None:
        return
    span = Span(
        name="upload",
        kind=SpanKind.UPLOAD,
        began=began,
        sec=max(0.0, time.time() - began),
        process=os.getpid(),
    )
    with services.uow.write() as repos:
        repos.traces.add(model_id=model.id, job_id=None, spans=[span])


def bind_model(
    services: Services,
    model_id: str,
    *,
    shapes: Mapping[str, GivenShape],
    values: Mapping[str, Any],
) -> SubmittedModel:
    """Import a model's file with other shapes and values, which is another model, as if it were uploaded again.

    A model that failed for want of right ones is deleted, because this takes its place.

    Raises:
        NotFoundError: ``model-not-found`` or ``model-deleted``; ``blob-not-found`` if the file is not kept: its import failed
            for another reason.
        InvalidInputError: ``bad-shape``, ``too-many-shapes`` or ``bad-value``.
    """
    with services.uow.read() as repos:
        model = repos.models.get(model_id)
    with services.blobs.open(model.sha256) as file:
        head = file.read(HEAD_BYTES)
    blob = StoredBlob(sha256=model.sha256, size_bytes=model.size_bytes, head=head, created=False)
    submitted = submit_model(
        services, name=model.name, blob=blob, shapes=shapes, values=values, replaces=False
    )
    with services.uow.write() as repos:
        # It may have been deleted, or be imported again, since it was read.
        replaced = repos.models.get(model.id, deleted=True)
        if replaced.needs_binding and submitted.model.id != model.id:
            repos.models.delete(model.id)
            repos.audit.note(AuditAction.MODEL_DELETED, model.id, replaced_by=submitted.model.id)
            if submitted.created:
                repos.models.take_version(submitted.model.id, of=model)
                submitted = replace(submitted, model=repos.models.get(submitted.model.id))
    return submitted


def require_ready(model: Model) -> None:
    """Refuse to work on a model that is not imported.

    Raises:
        ConflictError: ``model-importing``.
        InvalidInputError: ``model-failed``.
    """
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
