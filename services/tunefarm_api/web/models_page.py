"""The list of models, the page of one, and the list's own path for uploads: ``/v1/uploads`` for signed-in browsers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from tunefarm_api.auth import key_of, needs
from tunefarm_api.dependencies import ModelId, ServicesDep
from tunefarm_api.errors.problems import status_of
from tunefarm_api.paths import UPLOADS
from tunefarm_api.schemas.base import cursor_of
from tunefarm_api.transfer import tus
from tunefarm_api.web.forms import Form, FormDep, labels_of, refused_labels
from tunefarm_api.web.jobs.job_form import BEFORE, pools_of, request_of
from tunefarm_api.web.jobs.job_line import JobLine, job_lines
from tunefarm_api.web.jobs.task_view import shapes_text
from tunefarm_api.web.rendering import page
from tunefarm_app.jobs.submit import submit_job
from tunefarm_app.leases.device_turns import import_wait
from tunefarm_app.models.labels import label_model
from tunefarm_app.models.removal import delete_model
from tunefarm_app.models.submit import bind_model
from tunefarm_app.models.uploads import end_upload, find_upload
from tunefarm_app.runtime.composition import Services
from tunefarm_db.repositories.farm.overview import ListedJob
from tunefarm_db.repositories.models.models import ModelOrder
from tunefarm_db.unit_of_work import Repositories
from tunefarm_db.values import Model, ModelState, ModelTask
from tunefarm_text import job_terms
from tunefarm_text.bindings import value_texts
from tunefarm_text.job_terms import plain_tag
from tunefarm_text.shape_text import shape_line
from tunefarm_tuning.core.errors import InvalidInputError
from tunefarm_tuning.core.untrusted_text import clean
from tunefarm_tuning.workload.binding_text import parse_values
from tunefarm_tuning.workload.shapes import StoredShape, read_shape_lines

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 25
_JOBS_SHOWN = 25
_OPTION = re.compile(r"(?:^|\s)--(shape|value)[\s=]+")
"""An option of the command in a form's line: what an error proposes can be pasted."""


_STATES = (ModelState.IMPORTING, ModelState.READY, ModelState.FAILED)
_ORDERS = {
    ModelOrder.NEWEST: "Newest first",
    ModelOrder.OLDEST: "Oldest first",
    ModelOrder.NAME: "Name",
    ModelOrder.STATE: "State",
    ModelOrder.SIZE: "Largest first",
}


@router.get("/models", dependencies=[needs("read")])
def models_page(
    request: Request,
    services: ServicesDep,
    text: Annotated[str, Query(max_length=200)] = "",
    tag: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    order: ModelOrder = ModelOrder.NEWEST,
    cursor: Annotated[str | None, cursor_of("mdl")] = None,
) -> HTMLResponse:
    """The list of models."""
    filters = {"text": text.strip(), "tag": plain_tag(tag), "state": state}
    with services.uow.read() as repos:
        models = repos.models.list(
            state=next((known for known in _STATES if known == state), None),
            tags=[filters["tag"]] if filters["tag"] else (),
            text=filters["text"],
            order=order,
            cursor=cursor,
            limit=PAGE_SIZE,
        )
        tags = repos.overview.model_tags()
        jobs = repos.overview.count_jobs([model.id for model in models.items])
    return page(
        "models.html",
        request,
        models=models.items,
        jobs=jobs,
        asked={**filters, "order": order},
        filtered=any(filters.values()),
        tags=tags,
        states=_STATES,
        orders=_ORDERS,
        url_of=lambda cursor: _url({**filters, "order": order.value, "cursor": cursor}),
        cursor=cursor,
        next_cursor=models.next_cursor,
        max_bytes=services.settings.max_upload_bytes,
        upload_url=UPLOADS,
    )


@router.get("/models/{model_id}", dependencies=[needs("read")])
def model_page(model_id: ModelId, request: Request, services: ServicesDep) -> HTMLResponse:
    """A model's page, with the form that starts a job."""
    return _model_page(model_id, request, services)


def _model_page(
    model_id: str,
    request: Request,
    services: Services,
    *,
    given: Form | None = None,
    refused: InvalidInputError | None = None,
) -> HTMLResponse:
    """Return a model's page; with a form that was refused, and why, so that nothing has to be entered again."""
    with services.uow.read() as repos:
        model = repos.models.get(model_id)
        tasks = repos.models.tasks(model_id)
        lines = _jobs_of(repos, model)
        pools = pools_of(repos)
        samples = repos.samples.of_model(model_id)
        waiting = import_wait(repos, model_id) if model.state is ModelState.IMPORTING else None
    return page(
        "model.html",
        request,
        model=model,
        operators=sorted(model.operators, key=lambda pair: (-pair[1], pair[0])),
        kernels=_kernels_of(tasks),
        shapes_text=shapes_text,
        lines=lines,
        pools=pools,
        samples=samples,
        waiting=waiting,
        max_samples_bytes=services.settings.max_samples_bytes,
        terms=job_terms,
        given=BEFORE if given is None else {**dict.fromkeys(BEFORE, ""), **given},
        binding=_proposed(model) if given is None else given,
        file_is_kept=services.blobs.has(model.sha256),
        refused=refused,
    )


def _refused_page(
    model_id: str, request: Request, services: Services, form: Form, error: InvalidInputError
) -> HTMLResponse:
    shown = _model_page(model_id, request, services, given=form, refused=error)
    shown.status_code = status_of(error)
    return shown


@router.post("/models/{model_id}/jobs", dependencies=[needs("write")])
async def start_job(model_id: ModelId, request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Start a job, and show it; what cannot be started is shown again, as it was filled in."""
    try:
        job_request = request_of(model_id, form)
        submitted = await run_in_threadpool(submit_job, services, job_request)
    except InvalidInputError as error:
        return await run_in_threadpool(_refused_page, model_id, request, services, form, error)
    return RedirectResponse(f"/jobs/{submitted.job.id}", 303)


@router.post("/models/{model_id}/bind", dependencies=[needs("write")])
async def bind(model_id: ModelId, request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Import the model's file with the shapes and values of the form; what cannot be read is shown again."""
    try:
        shapes, values = _binding_of(form)
        submitted = await run_in_threadpool(bind_model, services, model_id, shapes=shapes, values=values)
    except InvalidInputError as error:
        return await run_in_threadpool(_refused_page, model_id, request, services, form, error)
    return RedirectResponse(f"/models/{quote(submitted.model.id, safe='')}", 303)


@router.get("/models/{model_id}/bind", dependencies=[needs("read")])
@router.get("/models/{model_id}/jobs", dependencies=[needs("read")])
@router.get("/models/{model_id}/labels", dependencies=[needs("read")])
def where_the_form_is(model_id: str) -> Response:
    """Lead to the page with the form, whose address this is after the form was refused."""
    return RedirectResponse(f"/models/{quote(model_id, safe='')}", 303)


@router.post("/models/{model_id}/labels", dependencies=[needs("write")])
async def label(model_id: ModelId, request: Request, form: FormDep, services: ServicesDep) -> Response:
    """Set the tags and the note of a model; what is refused is shown again, as it was filled in."""
    try:
        tags, note = labels_of(form)
        await run_in_threadpool(label_model, services, model_id, tags=tags, note=note)
    except InvalidInputError as error:
        return refused_labels(request, "/models", model_id, form, error)
    return RedirectResponse(f"/models/{quote(model_id, safe='')}", 303)


@router.post("/models/{model_id}/delete", dependencies=[needs("write")])
def remove(model_id: ModelId, services: ServicesDep) -> Response:
    """Delete a model."""
    delete_model(services, model_id)
    return RedirectResponse("/models", 303)


@router.post(UPLOADS, dependencies=[needs("write")])
async def begin_an_upload(request: Request, services: ServicesDep) -> Response:
    """Begin an upload in parts."""
    upload = await tus.begin(request, services)
    headers = {**tus.answer_headers(upload), "Location": f"{UPLOADS}/{upload.id}"}
    return Response(status_code=201, headers=headers)


@router.get(f"{UPLOADS}/{{upload_id}}", dependencies=[needs("read")])
def get_upload(upload_id: str, request: Request, services: ServicesDep) -> JSONResponse:
    """Say how far an upload is."""
    return tus.upload_response(find_upload(services, upload_id, api_key_id=key_of(request).id))


@router.patch(f"{UPLOADS}/{{upload_id}}", dependencies=[needs("write")])
async def send_part(upload_id: str, request: Request, services: ServicesDep) -> Response:
    """Take in a part of an upload."""
    upload = await tus.write_part(request, services, upload_id)
    return Response(status_code=204, headers=tus.answer_headers(upload))


@router.delete(f"{UPLOADS}/{{upload_id}}", dependencies=[needs("write")])
async def remove_upload(upload_id: str, request: Request, services: ServicesDep) -> Response:
    """Drop an upload."""
    await run_in_threadpool(end_upload, services, upload_id, api_key_id=key_of(request).id)
    return Response(status_code=204)


def _kernels_of(tasks: Sequence[ModelTask]) -> list[tuple[ModelTask, str]]:
    """Return each kernel once, the costliest first, with the graph passes that extract it, or none where all extract the same kernels."""
    passes: dict[tuple[str, int], list[str]] = {}
    for task in tasks:
        of = passes.setdefault((task.workload_key, task.weight), [])
        if task.pipeline not in of:
            of.append(task.pipeline)
    differ = len({tuple(of) for of in passes.values()}) > 1
    kernels = {(task.workload_key, task.weight): task for task in reversed(tasks)}
    costliest = sorted(kernels.items(), key=lambda item: -item[1].weight * item[1].flops)
    return [(task, ", ".join(sorted(passes[key])) if differ else "") for key, task in costliest]


def _url(query: dict[str, str]) -> str:
    text = urlencode({name: value for name, value in query.items() if value and value != ModelOrder.NEWEST})
    return f"/models?{text}" if text else "/models"


def _proposed(model: Model) -> Form:
    """Return the fields of the form that binds a model's inputs: what its import proposed."""
    proposal = (model.error or {}).get("fields", {}).get("proposal") or {
        "shapes": model.shapes,
        "values": model.values,
    }
    shapes = [shape_line(name, shape) for name, shape in proposal.get("shapes", {}).items()]
    return {"shapes": "\n".join(shapes), "values": "\n".join(value_texts(proposal.get("values", {})))}


def _binding_of(form: Form) -> tuple[dict[str, StoredShape], dict[str, Any]]:
    """Read the fields of the form that binds a model's inputs, one input per line, or as options of the command.

    Raises:
        InvalidInputError: ``bad-shape``, ``too-many-shapes`` or ``bad-value``.
    """
    lines: dict[str, list[str]] = {"shape": [], "value": []}
    for kind in lines:
        for line in form.get(f"{kind}s", "").splitlines():
            of = kind
            for word in _words(line):
                if word in ("--shape", "--value"):
                    of = word[2:]
                else:
                    lines[of].append(word)
    return read_shape_lines(lines["shape"]), parse_values(lines["value"])


def _words(line: str) -> list[str]:
    """Return a line as it is, or the words of options of the command, which may be quoted as for a shell.

    Raises:
        InvalidInputError: ``bad-shape`` if a quote is not closed.
    """
    if not _OPTION.search(line):
        return [line.strip()] if line.strip() else []
    try:
        return shlex.split(_OPTION.sub(r" --\1 ", line))
    except ValueError as error:
        raise InvalidInputError(f"{clean(line, 80)!r} cannot be read: {error}", code="bad-shape") from error


def _jobs_of(repos: Repositories, model: Model) -> Sequence[JobLine]:
    jobs = repos.jobs.list(model_id=model.id, limit=_JOBS_SHOWN).items
    return job_lines(repos, [ListedJob(job=job, model_name=model.name) for job in jobs])
