"""``/v1/models/{model_id}/samples``: real inputs of a model, to compare and time its artifact on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tunefarm_api.dependencies import ModelId, SamplesId, ServicesDep, operation
from tunefarm_api.schemas.base import Page
from tunefarm_api.schemas.samples import SampleFile
from tunefarm_api.transfer.upload import receive_samples
from tunefarm_app.models.samples import delete_samples, find_samples, list_samples

router = APIRouter(prefix="/v1/models/{model_id}/samples", tags=["samples"])

_BODY = {
    "requestBody": {
        "required": True,
        "description": "The bytes of a .npz file, not a multipart form.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "",
    status_code=202,
    openapi_extra=_BODY,
    **operation(
        "write",
        "Upload samples for a model",
        404,
        408,
        409,
        410,
        413,
        415,
        507,
        answers={
            200: {
                "model": SampleFile,
                "description": "The model has these samples already; they are returned.",
            }
        },
    ),
)
async def upload_samples(
    model_id: ModelId,
    request: Request,
    response: Response,
    services: ServicesDep,
    name: Annotated[str, Query(max_length=200, description="Name of the samples.")] = "samples",
) -> SampleFile:
    """Stores a `.npz` file and checks it in the background. Poll the samples until they are `ready` or `failed`.

    It has an array per input, named like the input (or `arr_0`, `arr_1`, ... in the inputs' order). An array has the input's
    shape, or one more dimension in front, for several sample sets. Name ready samples in a job (`samples`): its artifact is
    compared and timed on them first. Samples that no job uses expire. They are deleted with their model, and never sent to anybody.
    """
    submitted = await receive_samples(request, services, model_id, name)
    if not submitted.created:
        response.status_code = 200
    response.headers["Location"] = f"/v1/models/{submitted.samples.model_id}/samples/{submitted.samples.id}"
    return SampleFile.model_validate(submitted.samples)


@router.get("", **operation("read", "List a model's samples", 404, 410))
def list_samples_of_model(model_id: ModelId, services: ServicesDep) -> Page[SampleFile]:
    """Newest first. Never split into parts."""
    samples = list_samples(services, model_id)
    return Page[SampleFile](items=[SampleFile.model_validate(item) for item in samples], next_cursor=None)


@router.get("/{samples_id}", **operation("read", "Get samples", 404, 410))
def get_samples(model_id: ModelId, samples_id: SamplesId, services: ServicesDep) -> SampleFile:
    """State and facts of the samples, never their contents."""
    return SampleFile.model_validate(find_samples(services, model_id, samples_id))


@router.delete(
    "/{samples_id}",
    status_code=204,
    response_class=Response,
    **operation("write", "Delete samples", 404, 409, 410),
)
def remove_samples(model_id: ModelId, samples_id: SamplesId, services: ServicesDep) -> None:
    """Deletes their bytes at once. Jobs and reports stay. Refused while a job that uses them runs."""
    delete_samples(services, model_id, samples_id)
