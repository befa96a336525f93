"""``/v1/models``: upload, list and delete networks."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from tunefarm_api.dependencies import ModelId, ServicesDep, operation
from tunefarm_api.schemas.base import Limit, Page, cursor_of
from tunefarm_api.schemas.model import Model, ModelBinding, ModelChange, ModelTask
from tunefarm_api.transfer.upload import received_blob
from tunefarm_api.views import model_out
from tunefarm_app.models.labels import check_tag, label_model
from tunefarm_app.models.removal import delete_model
from tunefarm_app.models.submit import bind_model, submit_model
from tunefarm_app.runtime.composition import Services
from tunefarm_db import values
from tunefarm_db.repositories.models.models import ModelOrder
from tunefarm_db.values import ModelState
from tunefarm_tuning.workload.binding_text import parse_values
from tunefarm_tuning.workload.shapes import read_shape_lines

router = APIRouter(prefix="/v1/models", tags=["models"])

_BODY = {
    "requestBody": {
        "required": True,
        "description": "The bytes of an ONNX or TFLite file, not a multipart form.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "",
    status_code=202,
    openapi_extra=_BODY,
    **operation(
        "write",
        "Upload a model",
        408,
        413,
        415,
        507,
        answers={200: {"model": Model, "description": "The server has this model already, and returns it."}},
    ),
)
async def upload_model(
    request: Request,
    response: Response,
    services: ServicesDep,
    name: Annotated[str, Query(max_length=200, description="Name of the model.")] = "model",
    shape: Annotated[
        list[str] | None,
        Query(
            max_length=64,
            description="Shape of an input with dynamic dimensions; once per input. Several sizes of a dimension "
            "(`x=1,3,48,160|320|640`) or a range of batch sizes (`x=1..8,3,224,224@1,4,8`) make one artifact for all.",
            examples=["x=1,3,224,224", "x=1..8,3,160|320"],
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        Query(
            max_length=64,
            description="Value of an input that is a setting, and becomes a constant; once per input. A number, "
            "`true`, `false`, numbers with commas, or nested lists like `[[1,2],[3,4]]`.",
            examples=["sr=16000"],
        ),
    ] = None,
) -> Model:
    """Stores the file and imports it in the background. Poll the model until it is `ready` or `failed`.

    Equal bytes with equal shapes and values are one model, however often they are uploaded.
    """
    shapes, fixed = read_shape_lines(shape or []), parse_values(value or [])
    began = time.time()
    async with received_blob(request, services) as blob:
        submitted = await run_in_threadpool(
            submit_model, services, name=name, blob=blob, shapes=shapes, values=fixed, began=began
        )
    if not submitted.created:
        response.status_code = 200
    response.headers["Location"] = f"/v1/models/{submitted.model.id}"
    return await run_in_threadpool(_model_out, services, submitted.model)


@router.get("", **operation("read", "List models"))
def list_models(
    services: ServicesDep,
    state: Annotated[ModelState | None, Query(description="Only models in this state.")] = None,
    tag: Annotated[
        list[str] | None,
        Query(max_length=20, description="Only models with this tag; given several times, with all of them."),
    ] = None,
    text: Annotated[
        str,
        Query(
            max_length=200,
            description="Only models with this text in their id, name, tags or note, in any case.",
        ),
    ] = "",
    order: Annotated[ModelOrder, Query(description="`size`: the largest first.")] = ModelOrder.NEWEST,
    limit: Limit = 50,
    cursor: Annotated[str | None, cursor_of("mdl")] = None,
) -> Page[Model]:
    """Newest first, unless another `order` is given. Deleted models are listed only with `state=deleted`."""
    tags = [check_tag(name) for name in tag or ()]
    with services.uow.read() as repos:
        page = repos.models.list(
            state=state, tags=tags, text=text.strip(), order=order, cursor=cursor, limit=limit
        )
    return Page[Model].model_validate(page)


@router.get("/{model_id}", **operation("read", "Get a model", 404, 410))
def get_model(model_id: ModelId, services: ServicesDep) -> Model:
    """Includes the inputs, outputs and operators once the model is `ready`, and the error if it `failed`."""
    with services.uow.read() as repos:
        return model_out(repos, repos.models.get(model_id))


@router.patch("/{model_id}", **operation("write", "Change a model", 404, 410))
def change_model(model_id: ModelId, body: ModelChange, services: ServicesDep) -> Model:
    """Changes the given members: tags and note, which say nothing about the network. Omitted members stay."""
    return _model_out(services, label_model(services, model_id, tags=body.tags, note=body.note))


@router.get("/{model_id}/tasks", **operation("read", "List a model's tuning tasks", 404, 410))
def list_model_tasks(
    model_id: ModelId,
    services: ServicesDep,
    pipeline: Annotated[str | None, Query(description="Only tasks extracted by these graph passes.")] = None,
) -> Page[ModelTask]:
    """Empty until the tasks are extracted: at the import for `cpu`, else with the first job. Never split into parts."""
    with services.uow.read() as repos:
        repos.models.get(model_id)
        tasks = repos.models.tasks(model_id, pipeline=pipeline)
    return Page[ModelTask](items=[ModelTask.model_validate(task) for task in tasks], next_cursor=None)


@router.post(
    "/{model_id}/bind",
    status_code=202,
    **operation(
        "write",
        "Bind a model's inputs",
        404,
        410,
        answers={200: {"model": Model, "description": "The server has this model already, and returns it."}},
    ),
)
def bind_inputs(model_id: ModelId, binding: ModelBinding, response: Response, services: ServicesDep) -> Model:
    """Imports the model's file again, with other shapes or values of its inputs, as a new model. Nothing is uploaded again.

    If the import of the former model failed because they were missing, the new one replaces it. The file of a model that
    failed for any other reason is not kept (404, `blob-not-found`).
    """
    submitted = bind_model(
        services, model_id, shapes=read_shape_lines(binding.shapes), values=parse_values(binding.values)
    )
    if not submitted.created:
        response.status_code = 200
    response.headers["Location"] = f"/v1/models/{submitted.model.id}"
    return _model_out(services, submitted.model)


@router.delete(
    "/{model_id}",
    status_code=204,
    response_class=Response,
    **operation("write", "Delete a model", 404, 409, 410),
)
def remove_model(model_id: ModelId, services: ServicesDep) -> None:
    """Deletes its file and its samples too. Jobs, records and artifacts stay. Refused while a job of the model runs."""
    delete_model(services, model_id)


def _model_out(services: Services, model: values.Model) -> Model:
    with services.uow.read() as repos:
        return model_out(repos, model)
